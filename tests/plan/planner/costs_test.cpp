#include "axonn/plan/planner/costs.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/plan/planner/machines.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// A product of these sizes in bf16.
Recording::Compute product(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr DType kType = DType::bf16;
  return {.operation = "matmul",
          .kind = OperationKind::product,
          .layer = {},
          .operands = {{m, n, kType}, {m, k, kType}, {k, n, kType}},
          .flops = 2.0 * static_cast<double>(m * n * k)};
}

Recording::Start collective(const std::string& group, int ranks, const std::string& operation,
                            std::int64_t bytes) {
  return {.group = group, .ranks = ranks, .operation = operation, .label = {}, .bytes = bytes};
}

double seconds(const Machine& machine, const GridShape& grid, const Recording::Start& start) {
  const CollectiveCost cost = MachineCosts(machine, grid).collective(start);
  return cost.latency_s + cost.link_s;
}

/// The tolerance is relative: a few roundings.
void expect_equal(double got, double want) { EXPECT_NEAR(got, want, 1e-12 * want); }

}  // namespace

TEST(Costs, AProductIsHalfAsFastAtEachHalfSize) {
  Machine machine = round_machine();
  machine.launch_s = 1e-6;
  const double full = 2e12 / 1e14;
  expect_equal(MachineCosts(machine, {}).compute_s(product(10000, 10000, 10000)), 1e-6 + full);
  machine.bf16.half_n = 10000;
  expect_equal(MachineCosts(machine, {}).compute_s(product(10000, 10000, 10000)), 1e-6 + 2 * full);
  machine.bf16.half_k = 5000;
  expect_equal(MachineCosts(machine, {}).compute_s(product(10000, 10000, 10000)), 1e-6 + 3 * full);
  machine.bf16.half_m = 20000;
  expect_equal(MachineCosts(machine, {}).compute_s(product(10000, 10000, 10000)), 1e-6 + 9 * full);
}

TEST(Costs, ProductsOfExpertsCostAsManyTimesOne) {
  Machine machine = round_machine();
  machine.launch_s = 1e-6;
  machine.bf16.half_m = machine.bf16.half_k = 1000;
  for (const std::int64_t rows : {8, 10000}) {  // bound by memory, and by arithmetic
    Recording::Compute op = product(rows, 10000, 10000);
    const double one = MachineCosts(machine, {}).compute_s(op);
    op.count = 7;
    op.flops *= 7;
    expect_equal(MachineCosts(machine, {}).compute_s(op), 7 * one);
  }
}

TEST(Costs, AThinProductIsBoundByMemory) {
  const double bytes = 2.0 * (8 * 10000 + 8 * 10000 + 1e8);
  expect_equal(MachineCosts(round_machine(), {}).compute_s(product(8, 10000, 10000)), bytes / 1e12);
}

TEST(Costs, RowwiseWorkHasItsOwnRateOrThatOfMemory) {
  Machine machine = round_machine();
  const Recording::Compute gelu{.operation = "gelu",
                                .layer = {},
                                .operands = {{1000, 1000, DType::f32}, {1000, 1000, DType::f32}}};
  expect_equal(MachineCosts(machine, {}).compute_s(gelu), 8e6 / 1e12);
  machine.rowwise_bytes_per_s["other"] = 2e11;
  expect_equal(MachineCosts(machine, {}).compute_s(gelu), 8e6 / 2e11);
  machine.rowwise_bytes_per_s["gelu"] = 1e11;
  expect_equal(MachineCosts(machine, {}).compute_s(gelu), 8e6 / 1e11);
}

TEST(Costs, MeasuredTimesHoldForTheirGroupAndBetweenThemTimesGrowInAStraightLine) {
  Machine machine = round_machine();
  machine.groups = {{.operation = "all_gather",
                     .inner = 1,
                     .size = 4,
                     .latency_s = 1,
                     .bytes_per_s = 1,
                     .bytes = {1000, 2000, 4000},
                     .nanoseconds = {500, 900, 3900}}};
  const auto cost_of = [&](std::int64_t bytes) {
    return MachineCosts(machine, {.x = 4}).collective(collective("x", 4, "all_gather", bytes));
  };
  for (const auto& [bytes, nanoseconds] :
       {std::pair{10, 500}, {1000, 500}, {1500, 700}, {2000, 900}, {3000, 2400}, {6000, 6900}}) {
    expect_equal(cost_of(bytes).latency_s, 5e-7);
    expect_equal(cost_of(bytes).latency_s + cost_of(bytes).link_s, 1e-9 * nanoseconds);
  }
  EXPECT_FALSE(cost_of(1000).leaves_node);
  expect_equal(seconds(machine, {.x = 4}, collective("x", 4, "reduce_scatter", 1000000)),
               3e-6 + 0.75e6 / 1e11);
}

TEST(Costs, ARingInsideANodeTakesALatencyPerHopAndItsShareOfTheBytes) {
  const GridShape grid{.x = 4};
  expect_equal(seconds(round_machine(), grid, collective("x", 4, "all_gather", 1000000)),
               3e-6 + 0.75e6 / 1e11);
  expect_equal(seconds(round_machine(), grid, collective("x", 4, "reduce_scatter", 1000000)),
               3e-6 + 0.75e6 / 1e11);
  expect_equal(seconds(round_machine(), grid, collective("x", 4, "all_reduce", 1000000)),
               2 * (3e-6 + 0.75e6 / 1e11));
}

TEST(Costs, GroupsThatLeaveANodeShareItsLinks) {
  // x 2, z 8: two groups along z leave each node, and each has half of the links.
  const Machine machine = round_machine();
  expect_equal(seconds(machine, {.x = 2, .z = 8}, collective("z", 8, "all_gather", 8000000)),
               7 * (1e-5 + 1e-6) / 2 + 7e6 / 2e10);
  // x 4: one from each device.
  expect_equal(seconds(machine, {.x = 4, .z = 8}, collective("z", 8, "all_gather", 8000000)),
               7e-5 + 7e6 / 1e10);
  expect_equal(seconds(machine, {.x = 8, .z = 8}, collective("z", 8, "all_gather", 8000000)),
               7e-5 + 7e6 / 1e10);
  // A single ring has all links between nodes, but also uses those inside each node: three hops of
  // four are inside.
  const double latency = 7 * (1e-5 + 3e-6) / 4;
  expect_equal(seconds(machine, {.z = 8}, collective("z", 8, "all_gather", 8000000)),
               latency + 7e6 / 4e10);
  Machine slow_inside = machine;
  slow_inside.groups = {{.inner = 1, .size = 4, .latency_s = 1e-6, .bytes_per_s = 2e10}};
  expect_equal(seconds(slow_inside, {.z = 8}, collective("z", 8, "all_gather", 8000000)),
               latency + 7e6 / 2e10);
}

TEST(Costs, InAnExchangeEachMemberOfANodeSendsAcross) {
  const Machine machine = round_machine();
  const auto link_s = [&](const GridShape& grid) {
    return MachineCosts(machine, grid)
        .collective(collective("z", grid.z, "all_to_all", 8000000))
        .link_s;
  };
  // 4 members on each of 2 nodes: each sends half of its bytes across, at a quarter of the links.
  expect_equal(link_s({.z = 8}), 4e6 / 1e10);
  // x 2: 2 members of each group on each of 4 nodes; each sends 6 of 8 parts across.
  expect_equal(link_s({.x = 2, .z = 8}), 6e6 / 1e10);
  // x 4: one member on each node, as in a ring.
  expect_equal(link_s({.x = 4, .z = 8}), 7e6 / 1e10);
  expect_equal(link_s({.z = 4}), 0.75 * 8e6 / 1e11);
}

TEST(Costs, MoreGroupsThanAdaptersLeaveANodeWithAShareOfItsLinks) {
  Machine machine = round_machine();
  machine.adapters_per_node = 2;
  machine.shared_adapters_share = 0.5;
  const Recording::Start gather = collective("z", 8, "all_gather", 8000000);
  expect_equal(seconds(machine, {.x = 2, .z = 8}, gather),
               seconds(round_machine(), {.x = 2, .z = 8}, gather));
  expect_equal(seconds(machine, {.x = 4, .z = 8}, gather), 7e-5 + 7e6 / 0.5e10);
}

TEST(Costs, CollectivesOfAStepReachAShareOfTheRatesInsideANode) {
  Machine machine = round_machine();
  machine.inside_share = 0.25;
  expect_equal(seconds(machine, {.x = 4}, collective("x", 4, "all_gather", 1000000)),
               3e-6 + 0.75e6 / 0.25e11);
  machine.groups = {{.inner = 1, .size = 4, .bytes_per_s = 1e10}};
  expect_equal(seconds(machine, {.x = 4}, collective("x", 4, "all_gather", 1000000)),
               0.75e6 / 0.25e10);
}

TEST(Costs, TheSlowestOfManyDevicesSetsThePaceOfComputation) {
  Machine machine = round_machine();
  machine.device_spread = 0.01;
  const Recording::Compute large = product(10000, 10000, 10000);
  expect_equal(MachineCosts(machine, {}).compute_s(large), 2e12 / 1e14);
  // The 100-quantiles of the normal distribution: 99.38 % lie below 2.5 standard deviations.
  EXPECT_NEAR(MachineCosts(machine, {.data = 100}).compute_s(large), 0.02 * 1.025, 0.02 * 1e-4);
}

TEST(Costs, RanksWaitForTheLatestOfManyAtEveryCollective) {
  Machine machine = round_machine();
  EXPECT_EQ(MachineCosts(machine, {.data = 100}).lateness_s(1, 1), 0);
  machine.jitter_s = 1e-4;
  EXPECT_EQ(MachineCosts(machine, {}).lateness_s(1, 1), 0);
  // A second has the standard deviation 0.01; the latest of 100 ranks is 2.5 of them late.
  EXPECT_NEAR(MachineCosts(machine, {.data = 100}).lateness_s(1, 1), 0.025, 1e-4);
  EXPECT_NEAR(MachineCosts(machine, {.data = 100}).lateness_s(1, 4), 0.05, 2e-4);
}

TEST(Costs, AProgramThatStartsMoreCollectivesForWeightsPaysTheirLatencies) {
  Machine machine = round_machine();
  machine.program.weight_collectives = 4;
  const auto along = [&](const GridShape& grid, const char* group, int ranks) {
    return MachineCosts(machine, grid).collective(collective(group, ranks, "all_gather", 1000000));
  };
  expect_equal(along({.z = 4}, "z", 4).latency_s, 4 * 3e-6);
  expect_equal(along({.z = 4}, "z", 4).link_s, 0.75e6 / 1e11);
  EXPECT_EQ(along({.z = 4}, "z", 4).collectives, 4);
  expect_equal(along({.x = 4}, "x", 4).latency_s, 3e-6);
  EXPECT_EQ(along({.x = 4}, "x", 4).collectives, 1);
}

TEST(Costs, AGroupLeavesTheNodeIfItStraddlesTwo) {
  const auto leaves = [](const GridShape& grid, const char* group, int ranks) {
    return MachineCosts(round_machine(), grid)
        .collective(collective(group, ranks, "all_gather", 1000))
        .leaves_node;
  };
  EXPECT_FALSE(leaves({.x = 2, .y = 2, .z = 4}, "x", 2));
  EXPECT_FALSE(leaves({.x = 2, .y = 2, .z = 4}, "y", 2));
  EXPECT_TRUE(leaves({.x = 2, .y = 2, .z = 4}, "z", 4));
  EXPECT_TRUE(leaves({.x = 2, .y = 2, .z = 4}, "world", 16));
  EXPECT_TRUE(leaves({.x = 3, .y = 4}, "x", 3)) << "ranks 3, 4 and 5";
  EXPECT_FALSE(leaves({.x = 3}, "x", 3));
}

TEST(Costs, TheRateOfAProbedGroupReplacesTheRule) {
  Machine machine = round_machine();
  machine.groups = {{.inner = 2, .size = 8, .latency_s = 2e-5, .bytes_per_s = 1e9},
                    {.operation = "all_gather", .inner = 2, .size = 8, .bytes_per_s = 2e9}};
  const GridShape grid{.x = 2, .z = 8};
  expect_equal(seconds(machine, grid, collective("z", 8, "all_gather", 8000000)), 7e6 / 2e9);
  expect_equal(seconds(machine, grid, collective("z", 8, "reduce_scatter", 8000000)),
               7 * 2e-5 + 7e6 / 1e9);
}

TEST(Costs, ASmallSumOverManyRanksUsesATree) {
  const GridShape grid{.data = 1000};
  // A tree takes 2 · 10 hops; a ring would take 2 · 999.
  expect_equal(seconds(round_machine(), grid, collective("data", 1000, "all_reduce", 40)),
               20e-5 + 2 * 40 / 4e10);
  const double ring = 2 * 999e-5 + 2 * 0.999 * 4e10 / 4e10;
  EXPECT_LT(seconds(round_machine(), grid, collective("data", 1000, "all_reduce", 40000000000)),
            ring * (1 + 1e-12));
}

TEST(Costs, CollectivesInTwoLevelsPassEachHostOnceAndHaveFewerHops) {
  const Machine machine = round_machine();
  const GridShape grid{.x = 2, .z = 8};  // two members of z on each of four nodes
  const auto cost = [&](CollectivesKind kind, const char* operation) {
    return MachineCosts(machine, grid, kind).collective(collective("z", 8, operation, 8000000));
  };
  const CollectiveCost gather = cost(CollectivesKind::two_level, "all_gather");
  // Inside: one hop, and half of the bytes at 1e11; then the order of the parts, twice through
  // memory. Across: 3 hops, and three quarters of 4 MB at a quarter of the node's links.
  expect_equal(gather.latency_s, 1e-6 + 4e6 / 1e11 + 2 * 8e6 / 1e12 + 3e-5);
  expect_equal(gather.link_s, 3e6 / 1e10);
  EXPECT_TRUE(gather.leaves_node);
  expect_equal(cost(CollectivesKind::two_level, "all_reduce").link_s, 2 * gather.link_s);
  EXPECT_LT(gather.latency_s + gather.link_s,
            seconds(machine, grid, collective("z", 8, "all_gather", 8000000)));
  expect_equal(cost(CollectivesKind::automatic, "all_gather").link_s, gather.link_s);
  expect_equal(cost(CollectivesKind::flat, "all_gather").link_s, 7e6 / 2e10);
  // A group with one member on each node, or a broadcast, has one form only.
  expect_equal(seconds(machine, {.x = 4, .z = 8}, collective("z", 8, "all_gather", 8000000)),
               7e-5 + 7e6 / 1e10);
  expect_equal(cost(CollectivesKind::two_level, "broadcast").link_s,
               cost(CollectivesKind::flat, "broadcast").link_s);
}

TEST(Costs, AMissingRateIsRefusedByName) {
  const auto expect_refused = [](auto change, const char* what) {
    Machine machine = round_machine();
    change(machine);
    EXPECT_THAT([&] { check_rates(machine, DType::bf16, 64); },
                ThrowsMessage<UsageError>(HasSubstr(what)));
  };
  EXPECT_NO_THROW(check_rates(round_machine(), DType::bf16, 64));
  expect_refused([](Machine& m) { m.node_bytes_per_s = 0; }, "node_bytes_per_s");
  Machine one_node = round_machine();
  one_node.node_bytes_per_s = 0;
  EXPECT_NO_THROW(check_rates(one_node, DType::bf16, one_node.devices_per_node));
  expect_refused([](Machine& m) { m.memory_bytes = 0; }, "memory_bytes");
  expect_refused([](Machine& m) { m.bf16 = {}; }, "products in bf16");
  expect_refused([](Machine& m) { m.devices_per_node = 0; }, "devices_per_node");
  expect_refused([](Machine& m) { m.device_bytes_per_s = 0; }, "device_bytes_per_s");
  expect_refused([](Machine& m) { m.attention_flops_per_s = 0; }, "attention_flops_per_s");
}

TEST(Costs, RanksOfANodeShareItsDisk) {
  Machine machine = round_machine();
  machine.devices_per_node = 4;
  machine.disk_bytes_per_s = 1e9;
  const Recording::Start read{
      .group = Recording::kDisk, .operation = "transfer", .label = "read", .bytes = 500'000'000};
  expect_equal(seconds(machine, {}, read), 0.5);
  expect_equal(seconds(machine, {1, 1, 1, 2}, read), 1);
  expect_equal(seconds(machine, {1, 1, 1, 16}, read), 2);
  machine.disk_bytes_per_s = 0;
  EXPECT_THAT([&] { seconds(machine, {}, read); },
              ThrowsMessage<UsageError>(HasSubstr("has no disk_bytes_per_s")));
}
