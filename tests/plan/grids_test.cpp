#include "axonn/plan/grids.h"

#include <set>

#include <gmock/gmock.h>

using namespace axonn;
using testing::Each;
using testing::SizeIs;

TEST(Grids, AreAllOrderedFactorisationsEachOnce) {
  // 2^n has binomial(n + 3, 3) factorisations into four; 12 = 2^2 · 3 has 10 · 4.
  EXPECT_THAT(grids_of(1), SizeIs(1));
  EXPECT_THAT(grids_of(8), SizeIs(20));
  EXPECT_THAT(grids_of(12), SizeIs(40));
  EXPECT_THAT(grids_of(32768), SizeIs(816));
  std::set<std::string> names;
  for (const GridShape& grid : grids_of(360)) {
    EXPECT_EQ(grid.ranks(), 360);
    names.insert(to_string(grid));
  }
  EXPECT_THAT(names, SizeIs(grids_of(360).size()));
}

TEST(Grids, AStrategyAllowsOnlyItsKindsOfParallelism) {
  EXPECT_TRUE(allows(Strategy::fsdp, {.z = 8}, 4));
  EXPECT_FALSE(allows(Strategy::fsdp, {.z = 4, .data = 2}, 4));
  EXPECT_TRUE(allows(Strategy::hsdp, {.z = 4, .data = 2}, 4));
  EXPECT_FALSE(allows(Strategy::hsdp, {.x = 2, .z = 4}, 4));
  EXPECT_TRUE(allows(Strategy::megatron, {.x = 4, .z = 2, .data = 2}, 4));
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 8, .data = 2}, 4)) << "leaves the node";
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 3, .data = 4}, 4)) << "straddles nodes";
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 2, .y = 2}, 4));
  EXPECT_TRUE(allows(Strategy::grid_4d, {.x = 3, .y = 5, .z = 7, .data = 11}, 4));
}
