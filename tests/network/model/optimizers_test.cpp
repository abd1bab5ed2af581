// Update rules that keep more than AdamW, or communicate: the losses of one rank on every grid, and
// what changes no bit.
#include <gtest/gtest.h>

#include "tests/support/grids.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Key-value heads that several ranks hold, and, in GPT-2, q, k and v in one parameter.
TinyRun muon_run(const std::function<std::unique_ptr<Model>(const Grid&)>& make_model) {
  return {.optimizer = OptimizerKind::muon, .lr = 1e-3, .make_model = make_model};
}

TinyRun muon_with_experts() {
  TinyRun run = muon_run(model_of(tiny_mixtral()));
  run.balance = {.weight = 0.01, .z = 0.001};
  return run;
}

}  // namespace

TEST(OptimizersOnGrids, AdEMAMixHasTheLossesOfOneRankOnFewGrids) {
  EXPECT_EQ(
      difference_on_grids({.optimizer = OptimizerKind::ademamix, .make_model = tiny_gpt(4, true)},
                          few_grids()),
      "");
}

TEST(OptimizersOnGrids, MuonHasTheLossesOfOneRankOnManyGrids) {
  EXPECT_EQ(difference_on_grids(muon_run(tiny_gpt(4, true)), many_grids()), "");
}

TEST(OptimizersOnGrids, MuonOfALlamaHasTheLossesOfOneRankOnFewGrids) {
  EXPECT_EQ(difference_on_grids(muon_run(model_of(tiny_llama())), few_grids()), "");
}

TEST(OptimizersOnGrids, MuonOfExpertsHasTheLossesOfOneRankWhereverTheyAreHeld) {
  std::vector<GridShape> grids{{.x = 2, .y = 2, .z = 2, .experts = 2}, {.z = 4, .experts = 2}};
  if (!sanitized())
    grids.insert(grids.end(), {{2, 1, 2, 1},
                               GridShape{.z = 4, .experts = 4},
                               GridShape{.y = 2, .z = 2, .data = 2, .experts = 2},
                               GridShape{.x = 2, .z = 4, .experts = 2}});
  EXPECT_EQ(difference_replayed(muon_with_experts(), grids), "");
}

TEST(OptimizersOnGrids, MuonInBfloat16StaysWithinOnePercentOfOneRankOnTwoGrids) {
  TinyRun run = muon_run(tiny_gpt(4, true));
  run.dtype = DType::bf16;
  EXPECT_EQ(difference_on_grids(run, two_grids()), "");
}

TEST(OptimizersOnGrids, NeitherOverlapNorLateCollectivesChangeABitOfMuon) {
  for (const GridShape& shape : {GridShape{2, 2, 2, 1}, GridShape{1, 2, 2, 2}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyRun run = muon_run(tiny_gpt(4, true));
      run.grid = shape;
      run.dtype = dtype;
      run.steps = 2;
      const TinyTrace plain = run_tiny(with(no_overlap(), run));
      run.max_delay_us = 200;
      for (const Switches& switches : all_or_nothing()) {
        SCOPED_TRACE("grid " + to_string(shape) + ", " + switches.name);
        const TinyTrace late = run_tiny(with(switches, run));
        EXPECT_EQ(plain.losses, late.losses);
        EXPECT_EQ(plain.weights, late.weights);
      }
    }
}
