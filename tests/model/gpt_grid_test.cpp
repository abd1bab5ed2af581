#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Allowed relative differences, from the project's definition of correct (docs/correctness.md).
struct Limits {
  double loss, norm, parameter;
};
constexpr Limits kF32{2e-6, 2e-5, 1e-5}, kBf16{1e-2, 1e-2, 5e-2};

double relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(a), 1e-30); }

void expect_same(const TinyTrace& want, const TinyTrace& got, const Limits& limits) {
  ASSERT_EQ(want.losses.size(), got.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_LE(relative(want.losses[i], got.losses[i]), limits.loss) << "loss of step " << i;
    EXPECT_LE(relative(want.norms[i], got.norms[i]), limits.norm) << "norm of step " << i;
  }
  // A gradient that is zero by nature, such as a key bias's, is rounding noise on every grid.
  double largest = 0;
  for (const auto& [name, norm] : want.parameter_norms) largest = std::max(largest, norm);
  ASSERT_EQ(want.parameter_norms.size(), got.parameter_norms.size());
  for (const auto& [name, norm] : want.parameter_norms)
    EXPECT_NEAR(norm, got.parameter_norms.at(name),
                limits.parameter * std::max(norm, 1e-4 * largest))
        << name;
}

void compare_grids(TinyRun run, const std::vector<int>& ranks, const Limits& limits) {
  run.grid = {};
  const TinyTrace one = run_tiny(run);
  for (int n : ranks) {
    for (const GridShape& shape : grids_of(n)) {
      SCOPED_TRACE("grid " + to_string(shape));
      run.grid = shape;
      expect_same(one, run_tiny(run), limits);
    }
  }
}

}  // namespace

TEST(GptOnGrids, TiedModelHasTheLossesOfOneRankOnEveryGridOfUpToEightRanks) {
  compare_grids({.make_model = tiny_gpt(24, true)}, {2, 3, 4, 6, 8}, kF32);
}

TEST(GptOnGrids, FourKeyValueHeadsAndUntiedLogitsHaveTheLossesOfOneRank) {
  compare_grids({.make_model = tiny_gpt(4, false)}, {2, 3, 4, 6, 8}, kF32);
}

TEST(GptOnGrids, GradientDescentHasTheLossesOfOneRank) {
  // Adam hides a gradient's scale, plain descent does not.
  compare_grids({.optimizer = OptimizerKind::sgd, .lr = 0.1, .make_model = tiny_gpt(4, true)},
                {4, 6, 8}, kF32);
}

TEST(GptOnGrids, Bfloat16StaysWithinOnePercentOfOneRank) {
  compare_grids({.dtype = DType::bf16, .make_model = tiny_gpt(4, true)}, {4, 6, 8}, kBf16);
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
        expect_same(one, run_tiny(run), kF32);
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
