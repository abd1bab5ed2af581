#include "axonn/ranks/comm/collective_cost.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;

namespace {

/// Links between hosts that are slow, compared to those inside.
constexpr CollectiveRates kSlow = {.inside = {20e-6, 4e9}, .across = {50e-6, 25e6}};
constexpr double kInf = std::numeric_limits<double>::infinity();

/// The shape of a group whose ranks fill hosts one after another.
HostShape shape_of_blocks(int ranks, int ranks_per_host) {
  std::vector<std::uint64_t> names(ranks);
  for (int rank = 0; rank < ranks; ++rank) names[rank] = rank / ranks_per_host;
  return shape_of(Hosts(names), ranks);
}

}  // namespace

TEST(Hosts, GiveEachRankOneHelperOnEveryOtherHostAndEveryWardOneHelper) {
  const Hosts hosts({7, 7, 7, 3, 3, 7, 9});
  EXPECT_EQ(hosts.count(), 3);
  EXPECT_EQ(hosts.most_ranks(), 4);
  EXPECT_THAT(hosts.ranks_on(0), ElementsAre(0, 1, 2, 5));
  EXPECT_EQ(hosts.helper(5, 1), 4);  // index 3 of its host; the other one has two
  EXPECT_EQ(hosts.helper(5, 2), 6);
  EXPECT_THAT(hosts.clients(3), ElementsAre(0, 2, 6));
  EXPECT_THAT(hosts.clients(6), ElementsAre(0, 1, 2, 3, 4, 5));
  for (int host = 0; host < hosts.count(); ++host) {
    std::vector<int> helped(7);
    for (const int rank : hosts.ranks_on(host))
      for (const int client : hosts.clients(rank)) {
        ++helped[client];
        EXPECT_EQ(hosts.helper(client, host), rank);
      }
    for (int rank = 0; rank < 7; ++rank) EXPECT_EQ(helped[rank], hosts.of(rank) == host ? 0 : 1);
  }
}

TEST(Hosts, HaveTheBranchesThatTheirRanksCanSum) {
  const Hosts hosts({0, 0, 0, 1, 1, 1});
  EXPECT_EQ(hosts.branches_on(0), 2);
  EXPECT_EQ(hosts.most_branches(), 2);
  EXPECT_EQ(Hosts({0, 1, 0, 1}).most_branches(), 2);
  EXPECT_EQ(Hosts({0, 0, 1, 1}).most_branches(), 1);
}

TEST(CollectiveCost, CountsTheBytesThatLeaveAHost) {
  // No latencies, and links inside hosts that take no time: what is left is bytes between hosts.
  const CollectiveRates bytes = {.inside = {0, kInf}, .across = {0, 1}};
  const HostShape shape = shape_of_blocks(8, 2);  // 4 hosts; n = 100
  const auto of = [&](CollectiveMethod method, Operation operation, double widening = 1) {
    return collective_seconds(method, {operation, 800'000, widening}, shape, bytes) / 100'000;
  };
  EXPECT_EQ(of(CollectiveMethod::flat, Operation::all_gather), 2 * 6);
  EXPECT_EQ(of(CollectiveMethod::two_level, Operation::all_gather), 2 * 3);
  EXPECT_EQ(of(CollectiveMethod::two_level, Operation::all_gather, 2), 2 * 3);
  EXPECT_EQ(of(CollectiveMethod::flat, Operation::reduce_scatter), 2 * 6);
  EXPECT_EQ(of(CollectiveMethod::two_level, Operation::reduce_scatter), 2 * 3);
  EXPECT_EQ(of(CollectiveMethod::two_level, Operation::reduce_scatter, 2), 2 * 6);
  EXPECT_EQ(of(CollectiveMethod::flat, Operation::all_reduce), 2 * 12);
  EXPECT_EQ(of(CollectiveMethod::two_level, Operation::all_reduce), 2 * 6);
  EXPECT_EQ(of(CollectiveMethod::recursive, Operation::all_gather), 2 * (2 + 4));  // 1 inside
  EXPECT_EQ(of(CollectiveMethod::recursive, Operation::broadcast), 2 * 8 * 2);
  EXPECT_EQ(of(CollectiveMethod::recursive, Operation::reduce_scatter), 2 * (2 + 1));  // 4 inside
}

TEST(CollectiveCost, KnowsWhatIsImpossible) {
  const CollectiveRates rates;
  const auto possible = [&](CollectiveMethod method, Operation operation, const HostShape& shape) {
    return std::isfinite(collective_seconds(method, {operation, 1000}, shape, rates));
  };
  using enum CollectiveMethod;
  EXPECT_TRUE(possible(two_level, Operation::all_gather, shape_of_blocks(4, 2)));
  EXPECT_FALSE(possible(two_level, Operation::all_gather, shape_of_blocks(4, 4)));
  EXPECT_FALSE(possible(two_level, Operation::all_gather, shape_of_blocks(4, 1)));
  EXPECT_FALSE(possible(two_level, Operation::broadcast, shape_of_blocks(4, 2)));
  EXPECT_FALSE(possible(recursive, Operation::all_to_all, shape_of_blocks(4, 2)));
  EXPECT_FALSE(possible(recursive, Operation::barrier, shape_of_blocks(4, 2)));
  for (int op = 0; op < kOperations; ++op)
    EXPECT_TRUE(possible(flat, static_cast<Operation>(op), shape_of_blocks(4, 2)));
}

TEST(CollectiveCost, ChoosesTwoLevelsWhereHostsShareASlowLink) {
  const HostShape shape = shape_of_blocks(8, 2), in_turn = shape_of(Hosts({0, 1, 0, 1}), 4);
  using enum CollectiveMethod;
  for (const Operation operation :
       {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
    EXPECT_EQ(fastest_method({operation, 1 << 20}, shape, kSlow), two_level);
    EXPECT_EQ(fastest_method({operation, 1 << 20}, shape_of_blocks(8, 8), kSlow), flat);
    EXPECT_EQ(fastest_method({operation, 1 << 20}, shape_of_blocks(8, 1), kSlow), flat);
  }
  // Each value of a sum would leave the host, as with the flat exchange.
  EXPECT_EQ(fastest_method({Operation::reduce_scatter, 1 << 20}, in_turn, kSlow), flat);
  EXPECT_EQ(fastest_method({Operation::reduce_scatter, 1 << 20, 2}, shape, kSlow), flat);  // bf16
  EXPECT_EQ(fastest_method({Operation::all_gather, 1 << 20}, in_turn, kSlow), two_level);
}

TEST(CollectiveCost, ChoosesFewRoundsWhereLatencyDominates) {
  using enum CollectiveMethod;
  const CollectiveRates rates;
  for (const Operation operation : {Operation::all_gather, Operation::all_reduce,
                                    Operation::reduce_scatter, Operation::broadcast})
    EXPECT_EQ(fastest_method({operation, 1024}, shape_of_blocks(512, 1), rates), recursive);
  EXPECT_EQ(fastest_method({Operation::broadcast, 1 << 24}, shape_of_blocks(512, 1), rates), flat);
  EXPECT_EQ(fastest_method({Operation::all_reduce, 1024}, shape_of_blocks(2, 1), rates), flat);
}

TEST(CollectiveCost, LetsAPolicyForceAMethodWhereItIsPossible) {
  using enum CollectiveMethod;
  const CollectivePolicy policy{two_level, kSlow};
  EXPECT_EQ(policy.choose({Operation::all_gather, 8}, shape_of_blocks(8, 2)), two_level);
  EXPECT_EQ(policy.choose({Operation::all_gather, 8}, shape_of_blocks(8, 8)), flat);
  EXPECT_EQ(policy.choose({Operation::barrier, 0}, shape_of_blocks(8, 2)), flat);
  EXPECT_EQ((CollectivePolicy{flat, kSlow}.choose({Operation::all_gather, 1 << 24},
                                                  shape_of_blocks(8, 2))),
            flat);
  EXPECT_EQ(
      (CollectivePolicy{{}, kSlow}.choose({Operation::all_gather, 1 << 24}, shape_of_blocks(8, 2))),
      two_level);
}
