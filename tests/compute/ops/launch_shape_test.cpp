// The sizes of launches on GPUs.
#include "axonn/compute/ops/gpu/launch_shape.h"

#include <gmock/gmock.h>

using axonn::cuda::HeadShape;
using axonn::cuda::kPack;

TEST(HeadShape, GivesAHeadAsFewLanesAsHaveItsPacksAndFillsTheBlock) {
  for (int width = 1; width <= 32 * kPack; ++width) {
    const HeadShape shape = HeadShape::of(width);
    ASSERT_GE(shape.shift, 0) << width;
    const int lanes = 1 << shape.shift;
    EXPECT_GE(lanes * kPack, width);
    EXPECT_TRUE(lanes == 1 || lanes / 2 * kPack < width) << width;
    EXPECT_EQ(lanes * shape.heads, HeadShape::kThreads);
  }
  EXPECT_LT(HeadShape::of(32 * kPack + 1).shift, 0) << "a block has it";
}

TEST(HeadShape, OfKnownModelsHasWorkForEveryLane) {
  for (const int at_once : {32, 64, 128})  // half of a head, or one, of GPT-2, Llama 3.1 and Qwen3
    EXPECT_EQ(at_once / kPack * HeadShape::of(at_once).heads, HeadShape::kThreads) << at_once;
}
