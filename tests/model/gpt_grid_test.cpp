#include <cmath>

#include <gmock/gmock.h>

#include "tests/support/grids.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(GptOnGrids, TiedModelHasTheLossesOfOneRankOnEveryGridOfUpToEightRanks) {
  EXPECT_EQ(difference_on_grids({.make_model = tiny_gpt(24, true)}, {2, 3, 4, 6, 8}), "");
}

TEST(GptOnGrids, FourKeyValueHeadsAndUntiedLogitsHaveTheLossesOfOneRankOnEveryGrid) {
  EXPECT_EQ(difference_on_grids({.make_model = tiny_gpt(4, false)}, {2, 3, 4, 6, 8}), "");
}

TEST(GptOnGrids, GradientDescentHasTheLossesOfOneRankOnEveryGrid) {
  // Adam hides a gradient's scale, plain descent does not.
  EXPECT_EQ(
      difference_on_grids(
          {.optimizer = OptimizerKind::sgd, .lr = 0.1, .make_model = tiny_gpt(4, true)}, {4, 6, 8}),
      "");
}

TEST(GptOnGrids, Bfloat16StaysWithinOnePercentOfOneRankOnEveryGrid) {
  EXPECT_EQ(difference_on_grids({.dtype = DType::bf16, .make_model = tiny_gpt(4, true)}, {4, 6, 8}),
            "");
}

TEST(GptOnGrids, LossesDoNotDependOnAccumulationChunksOrCutRows) {
  TinyRun run{.make_model = tiny_gpt(4, true)};
  const TinyTrace one = run_tiny(run);
  for (const GridShape& shape : {GridShape{}, GridShape{2, 2, 2, 1}, GridShape{3, 1, 2, 1}}) {
    for (int accumulation : {1, 3}) {
      for (int chunks : {1, 2}) {
        for (bool cut : {true, false}) {
          SCOPED_TRACE("grid " + to_string(shape));
          run.grid = shape;
          run.accumulation = accumulation;
          run.chunks = chunks;
          run.sequence_parallel = cut;
          EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "");
        }
      }
    }
  }
}

TEST(GptOnGrids, TrainingLowersTheLossOfARepeatedBatch) {
  TinyRun run{.steps = 30, .lr = 3e-3, .make_model = tiny_gpt(24, true)};
  run.repeat_batch = true;
  const TinyTrace trace = run_tiny(run);
  EXPECT_NEAR(trace.losses.front(), std::log(251), 0.1);
  EXPECT_LT(trace.losses.back(), 0.8 * trace.losses.front());
}

namespace {

/// The bits of the switches: what overlaps, and whether blocks are recomputed.
TinyRun with_switches(TinyRun run, int bits) {
  run.overlap = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
  run.recompute = (bits & 16) != 0;
  return run;
}

void expect_same_bits(const TinyTrace& want, const TinyTrace& got) {
  EXPECT_EQ(want.losses, got.losses);
  EXPECT_EQ(want.norms, got.norms);
}

}  // namespace

TEST(GptOnGrids, OverlapAndRecomputationChangeNoBit) {
  // Two micro-batches: the second adds to a shard whose first sum may be under way.
  for (const GridShape& shape : {GridShape{}, GridShape{2, 2, 2, 1}, GridShape{1, 2, 2, 2}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      const TinyRun run{.grid = shape,
                        .steps = 2,
                        .accumulation = 2,
                        .dtype = dtype,
                        .make_model = tiny_gpt(4, true)};
      const TinyTrace plain = run_tiny(run);
      for (int bits = 0; bits < 32; ++bits) {
        SCOPED_TRACE("grid " + to_string(shape) + ", switches " + std::to_string(bits));
        expect_same_bits(plain, run_tiny(with_switches(run, bits)));
      }
    }
  }
}

TEST(GptOnGrids, LateCollectivesChangeNoBit) {
  // Random delays show a value that is used before its collective is done, or a buffer that is
  // written under one: with nothing overlapped, and with everything, recomputed and not.
  for (const GridShape& shape : {GridShape{2, 2, 2, 1}, GridShape{1, 2, 2, 2}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      TinyRun run{.grid = shape,
                  .steps = 2,
                  .accumulation = 2,
                  .dtype = dtype,
                  .make_model = tiny_gpt(4, true)};
      const TinyTrace plain = run_tiny(run);
      run.max_delay_us = 200;
      for (int bits : {0, 15, 31}) {
        SCOPED_TRACE("grid " + to_string(shape) + ", switches " + std::to_string(bits));
        expect_same_bits(plain, run_tiny(with_switches(run, bits)));
      }
    }
  }
}
