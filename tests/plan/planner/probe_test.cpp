#include "axonn/plan/planner/machine/probe.h"

#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/disk_folder.h"

using namespace axonn;
using testing::Contains;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::Key;
using testing::Pair;
using testing::SizeIs;

namespace {

/// The machines that the ranks of a quick probe on threads get.
std::vector<Machine> probed(int ranks, ProbeOptions options = {}) {
  options.quick = true;
  std::vector<Machine> machines(ranks);
  run_ranks(ranks, [&](Communicator& world) { machines[world.rank()] = probe(world, options); });
  return machines;
}

struct Probed {
  std::vector<Machine> machines;   // by rank
  std::vector<std::string> lines;  // that rank 0 reports
};

/// A probe of four ranks on two nodes, run once for all tests that read it.
const Probed& four_ranks() {
  static const Probed found = [] {
    Probed probe;
    probe.machines = probed(4, {.name = "here", .devices_per_node = 2, .report = [&](auto line) {
                                  probe.lines.push_back(line);  // only on rank 0
                                }});
    return probe;
  }();
  return found;
}

}  // namespace

TEST(Probe, AllRanksGetTheSameMachineWhichReadsBackUnchangedAndAllowsPlans) {
  const auto& [machines, lines] = four_ranks();
  EXPECT_THAT(machines, Each(machines.front()));
  const Machine& machine = machines.front();
  EXPECT_EQ(machine.name, "here");
  EXPECT_EQ(machine.devices_per_node, 2);
  EXPECT_THAT(machine.source, HasSubstr("4 ranks on 2 nodes"));
  EXPECT_THAT(lines, Contains(HasSubstr("products bf16")));

  const std::string file = testing::TempDir() + "/probed.toml";
  std::ofstream(file) << to_toml(machine);
  EXPECT_EQ(read_machine(file), machine);

  EXPECT_NO_THROW(check_rates(machine, DType::f32, 4));
  EXPECT_NO_THROW(check_rates(machine, DType::bf16, 4));
  Config config;
  config.model = {.layers = 4, .hidden = 64, .heads = 4, .vocab = 256};
  config.training = {.steps = 1, .seq_len = 16, .global_batch = 4, .micro_batch = 1};
  config.training.threads = 1;
  config.data.synthetic = 20'000;
  config.optimizer.lr = 1e-3;
  config.parallelism.set_grid({2, 1, 2, 1});
  EXPECT_GT(estimate(prepared(config), machine).time.step_s, 0);
}

TEST(Probe, HasARateForEveryGroupShapeAndEveryRowwiseOperationOfAStep) {
  const Machine& machine = four_ranks().machines.front();
  std::vector<std::tuple<std::string, int, int>> groups;
  for (const GroupRate& group : machine.groups) {
    groups.emplace_back(group.operation, group.inner, group.size);
    EXPECT_GT(group.bytes_per_s, 0);
    EXPECT_GE(group.latency_s, 0);
    EXPECT_GT(group.bytes.size(), 1);
    EXPECT_EQ(group.bytes.size(), group.nanoseconds.size());
    EXPECT_THAT(group.nanoseconds, testing::Each(Gt(0)));
  }
  std::vector<std::tuple<std::string, int, int>> wanted;
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce"})
    for (const auto& [inner, size] : {std::pair{1, 2}, std::pair{1, 4}, std::pair{2, 2}})
      wanted.emplace_back(operation, inner, size);
  EXPECT_THAT(groups, testing::UnorderedElementsAreArray(wanted));

  for (const char* operation :
       {"norm_forward", "norm_backward", "gelu", "gelu_backward", "add_moments", "embedding",
        "rotary_embedding", "swiglu", "cross_entropy", "adamw", "cast", "squared_sum"})
    EXPECT_THAT(machine.rowwise_bytes_per_s, Contains(Pair(operation, Gt(0)))) << operation;
  EXPECT_THAT(machine.rowwise_bytes_per_s, testing::Not(Contains(Key("matmul"))));
}

TEST(Probe, RefusesOneRankAndUnevenNodes) {
  EXPECT_THROW(probed(1), UsageError);
  EXPECT_THROW(probed(3, {.devices_per_node = 2}), UsageError);
}

TEST(Probe, MeasuresADiskIfOneIsNamed) {
  EXPECT_EQ(four_ranks().machines.front().disk_bytes_per_s, 0);
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  const std::vector<Machine> machines = probed(2, {.disk = test::disk_folder()});
  EXPECT_THAT(machines, Each(machines.front()));
  EXPECT_THAT(machines.front().disk_bytes_per_s, testing::AllOf(Gt(1e5), testing::Lt(1e12)));
}
