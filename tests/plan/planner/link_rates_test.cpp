#include "axonn/plan/planner/machine/link_rates.h"

#include <gtest/gtest.h>

#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/load/launch.h"

using namespace axonn;

TEST(LinkRates, AreThoseOfTheMachineWhereItHasThem) {
  const CollectiveRates usual;
  const Machine machine{.node_bytes_per_s = 25e6, .node_latency_s = 1e-3, .device_latency_s = 2e-3};
  const CollectiveRates rates = link_rates(machine);
  EXPECT_EQ(rates.across.bytes_per_s, 25e6);
  EXPECT_EQ(rates.across.latency_s, 1e-3);
  EXPECT_EQ(rates.inside.latency_s, 2e-3);
  EXPECT_EQ(rates.inside.bytes_per_s, usual.inside.bytes_per_s);
}

TEST(LinkRates, OfRank0BecomeThePolicyOfAllRanksAndOfLaterGroups) {
  run_ranks(4, [](Communicator& world) {
    const ParallelismConfig config{.collectives = CollectivesKind::two_level};
    use_link_rates(world, config, {.node_latency_s = world.rank() == 0 ? 0.5 : 0});
    const auto pair = world.split(world.rank() / 2, "pair");
    for (const Communicator* group : {&world, pair.get()}) {
      EXPECT_EQ(group->policy().method, CollectiveMethod::two_level);
      EXPECT_EQ(group->policy().rates.value().across.latency_s, 0.5);
    }
  });
}

TEST(LinkRates, LeaveTheMethodOpenUnlessTheKeyForcesOne) {
  EXPECT_EQ(policy_of({}).method, std::nullopt);
  EXPECT_EQ(policy_of({.collectives = CollectivesKind::flat}).method, CollectiveMethod::flat);
}
