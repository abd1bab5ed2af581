#include <cmath>

#include <gmock/gmock.h>

#include "tests/support/grids.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(GptOnGrids, TiedModelHasTheLossesOfOneRankOnManyGrids) {
  EXPECT_EQ(difference_on_grids({.make_model = tiny_gpt(24, true)}, many_grids()), "");
}

TEST(GptOnGrids, FourKeyValueHeadsAndUntiedLogitsHaveTheLossesOfOneRankOnFewGrids) {
  EXPECT_EQ(difference_on_grids({.make_model = tiny_gpt(4, false)}, few_grids()), "");
}

namespace {

/// Biases of 1 and -1 take what ReLU gets far from 0, where rounding would turn its slope.
void keep_relu_from_0(const Context& ctx, Model& model) {
  for (ParameterGroup* group : model.groups()) {
    for (const auto& [spec, slice] : group->piece_slices())
      for (std::int64_t e = slice.begin; e < slice.end && spec->name.ends_with("fc1.bias"); ++e) {
        const float value = (slice.row + e) % 2 == 0 ? 1 : -1;
        group->set_values(ctx, slice.offset + e - slice.begin, {&value, 1});
      }
    group->publish_values(ctx);
  }
}

}  // namespace

TEST(GptOnGrids, OptHasTheLossesOfOneRankOnFewGrids) {
  for (const bool tied : {true, false}) {
    ModelConfig config = tiny_config(tied ? 24 : 4, tied);
    config.family = ModelFamily::opt;
    EXPECT_EQ(difference_on_grids({.make_model = model_of(config), .before = keep_relu_from_0},
                                  few_grids()),
              "");
  }
}

TEST(GptOnGrids, GradientDescentHasTheLossesOfOneRankOnFewGrids) {
  // Adam hides a gradient's scale; plain gradient descent does not.
  EXPECT_EQ(difference_on_grids(
                {.optimizer = OptimizerKind::sgd, .lr = 0.1, .make_model = tiny_gpt(4, true)},
                few_grids()),
            "");
}

TEST(GptOnGrids, Bfloat16StaysWithinOnePercentOfOneRankOnFewGrids) {
  EXPECT_EQ(
      difference_on_grids({.dtype = DType::bf16, .make_model = tiny_gpt(4, true)}, few_grids()),
      "");
}

TEST(GptOnGrids, F16StaysWithinTwoThousandthsOfOneRankOnFewGrids) {
  EXPECT_EQ(
      difference_on_grids({.dtype = DType::f16, .make_model = tiny_gpt(4, true)}, few_grids()), "");
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

/// Two micro-batches: the second adds to a shard whose first reduce-scatter may be in flight.
TinyRun two_micro_batches(const GridShape& grid, DType dtype) {
  return {
      .grid = grid, .steps = 2, .accumulation = 2, .dtype = dtype, .make_model = tiny_gpt(4, true)};
}

void expect_same_bits(const TinyTrace& want, const TinyTrace& got) {
  EXPECT_EQ(want.losses, got.losses);
  EXPECT_EQ(want.norms, got.norms);
  EXPECT_EQ(want.weights, got.weights);
}

/// The grids with the most collectives to overlap. Under sanitizers, only the first.
std::vector<GridShape> overlap_grids() {
  if (sanitized()) return {{2, 2, 2, 1}};
  return {{2, 2, 2, 1}, {1, 2, 2, 2}, {1, 3, 1, 2}};
}

/// Random delays reveal a value that is used before its collective is done, or a buffer that is
/// overwritten during one. Overlaps nothing, or everything with and without recomputation.
void expect_same_bits_when_late(const GridShape& shape) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TinyRun run = two_micro_batches(shape, dtype);
    run.chunks = dtype == DType::f32 ? 1 : 2;
    const TinyTrace plain = run_tiny(with(no_overlap(), run));
    run.max_delay_us = 200;
    for (const Switches& switches : all_or_nothing()) {
      SCOPED_TRACE("grid " + to_string(shape) + ", " + switches.name);
      expect_same_bits(plain, run_tiny(with(switches, run)));
    }
  }
}

}  // namespace

TEST(GptOnGrids, NoOverlapAndNoRecomputationChangesABitOnFewGrids) {
  for (const GridShape& shape : few_grids()) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const TinyRun run = two_micro_batches(shape, dtype);
      const TinyTrace plain = run_tiny(with(no_overlap(), run));
      Switches recomputed = no_overlap();
      recomputed.name = "recomputation";
      recomputed.recompute = true;
      for (const Switches& switches : {all_or_nothing()[1], recomputed, all_or_nothing()[2]}) {
        SCOPED_TRACE("grid " + to_string(shape) + ", " + switches.name);
        expect_same_bits(plain, run_tiny(with(switches, run)));
      }
    }
  }
}

TEST(GptOnGrids, NoCombinationOfOverlapsChangesABit) {
  for (const GridShape& shape : overlap_grids()) {
    const TinyRun run = two_micro_batches(shape, DType::f32);
    const TinyTrace plain = run_tiny(with(no_overlap(), run));
    for (unsigned bits = 1; bits < 16; ++bits) {
      const auto on = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
      TinyRun some = run;
      some.overlap = {.input_gradients = on(0),
                      .weight_gradients = on(1),
                      .weights = on(2),
                      .data = on(3),
                      .context = false};  // GPT's positions are not shared
      SCOPED_TRACE("grid " + to_string(shape) + ", combination " + std::to_string(bits));
      expect_same_bits(plain, run_tiny(some));
    }
  }
}

TEST(GptOnGrids, LateCollectivesChangeNoBit) {
  for (const GridShape& shape : overlap_grids()) expect_same_bits_when_late(shape);
}
