#include <cmath>

#include <gmock/gmock.h>

#include "axonn/train/compare.h"

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// As axonn check compares them.
void expect_same(const TinyTrace& want, const TinyTrace& got, DType dtype) {
  const Tolerance tolerance = tolerance_of(dtype);
  const auto trace = [](const TinyTrace& t) {
    return GridTrace{{}, t.losses, t.norms, t.parameter_norms, {}};
  };
  const GridComparison c = compare(trace(want), trace(got), tolerance);
  EXPECT_TRUE(c.agrees) << comparison_table({c}, tolerance);
}

void compare_grids(TinyRun run, const std::vector<int>& ranks) {
  run.grid = {};
  const TinyTrace one = run_tiny(run);
  for (int n : ranks) {
    for (const GridShape& shape : grids_of(n)) {
      SCOPED_TRACE("grid " + to_string(shape));
      run.grid = shape;
      expect_same(one, run_tiny(run), run.dtype);
    }
  }
}

}  // namespace

TEST(GptOnGrids, TiedModelHasTheLossesOfOneRankOnEveryGridOfUpToEightRanks) {
  compare_grids({.make_model = tiny_gpt(24, true)}, {2, 3, 4, 6, 8});
}

TEST(GptOnGrids, FourKeyValueHeadsAndUntiedLogitsHaveTheLossesOfOneRank) {
  compare_grids({.make_model = tiny_gpt(4, false)}, {2, 3, 4, 6, 8});
}

TEST(GptOnGrids, GradientDescentHasTheLossesOfOneRank) {
  // Adam hides a gradient's scale, plain descent does not.
  compare_grids({.optimizer = OptimizerKind::sgd, .lr = 0.1, .make_model = tiny_gpt(4, true)},
                {4, 6, 8});
}

TEST(GptOnGrids, Bfloat16StaysWithinOnePercentOfOneRank) {
  compare_grids({.dtype = DType::bf16, .make_model = tiny_gpt(4, true)}, {4, 6, 8});
}

TEST(GptOnGrids, LossesDoNotDependOnAccumulationOrChunks) {
  TinyRun run{.make_model = tiny_gpt(4, true)};
  const TinyTrace one = run_tiny(run);
  for (const GridShape& shape : {GridShape{}, GridShape{2, 2, 2, 1}, GridShape{3, 1, 2, 1}}) {
    for (int accumulation : {1, 3}) {
      for (int chunks : {1, 2}) {
        SCOPED_TRACE("grid " + to_string(shape));
        run.grid = shape;
        run.accumulation = accumulation;
        run.chunks = chunks;
        expect_same(one, run_tiny(run), run.dtype);
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

TEST(GptOnGrids, OverlapAndRecomputationChangeNoBit) {
  for (const GridShape& shape : {GridShape{}, GridShape{2, 2, 2, 1}, GridShape{1, 2, 2, 2}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      TinyRun run{.grid = shape,
                  .steps = 4,
                  .accumulation = 2,
                  .dtype = dtype,
                  .make_model = tiny_gpt(4, true)};
      const TinyTrace plain = run_tiny(run);
      for (int bits = 0; bits < 16; ++bits) {
        SCOPED_TRACE("grid " + to_string(shape) + ", switches " + std::to_string(bits));
        run.overlap = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        run.recompute = (bits & 8) != 0;
        run.max_delay_us = 200;
        const TinyTrace other = run_tiny(run);
        EXPECT_EQ(plain.losses, other.losses);
        EXPECT_EQ(plain.norms, other.norms);
      }
    }
  }
}
