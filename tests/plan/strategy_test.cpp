#include "axonn/plan/strategy.h"

#include <gmock/gmock.h>

using namespace axonn;

TEST(Strategy, AllowsOnlyItsKindsOfParallelism) {
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
