// Runs in which neighbours along z share sequences: targets, memory, checkpoints, evaluation.
#include <gmock/gmock.h>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// 6 steps of 2 sequences of 512 tokens.
Config long_config(const std::string& folder) {
  Config config = tiny_config(folder);
  config.training.steps = 6;
  config.training.seq_len = 512;
  config.training.global_batch = 2;
  config.checkpoint.every = 3;
  return config;
}

TEST(ContextRuns, GoldfishKeepsAndCountsTheTargetsOfOneRank) {
  test::TemporaryPath folder;
  Config config = long_config(folder / "run");
  config.training.goldfish = {.k = 2, .h = 5};
  const auto tokens = [](const Config& given) {
    std::int64_t counted = 0;
    run_ranks(given.parallelism.grid().ranks(), [&](Communicator& world) {
      Training training(prepared(given), world, make_cpu_backend(1));
      const StepInput input = training.input(1);
      if (world.rank() == 0) counted = input.tokens;
    });
    return counted;
  };
  const std::vector<double> one = first_losses(config);
  for (const GridShape grid :
       {GridShape{.z = 4, .context = 2}, GridShape{.x = 2, .z = 2, .context = 2}}) {
    EXPECT_EQ(tokens(on_grid(config, grid)), tokens(config));
    EXPECT_LE(largest_difference(first_losses(on_grid(config, grid)), one), 2e-6)
        << with_factors(grid);
  }
}

TEST(ContextRuns, DryPeakEqualsARealRuns) {
  test::TemporaryPath folder;
  for (const GridShape grid :
       {GridShape{.z = 2, .context = 2}, GridShape{.x = 2, .z = 4, .context = 4}})
    for (const bool overlap : {true, false})
      for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
        Config config = on_grid(long_config(folder / "run"), grid);
        config.parallelism.overlap.context = overlap;
        config.activation_checkpoint.mode = mode;
        expect_dry_peak(prepared(config));
      }
}

TEST(ContextRuns, ActivationsShrinkWithTheContext) {
  Config config = on_grid(tiny_config("unused"), {1, 1, 4, 1});
  config.model = {.family = ModelFamily::llama,
                  .layers = 80,
                  .hidden = 512,
                  .heads = 8,
                  .kv_heads = 2,
                  .vocab = 256};
  config.training.seq_len = 8192;
  config.training.global_batch = 4;
  config.training.micro_batch = 1;
  const auto activations = [](const Config& given) {
    return static_cast<double>(
        dry_step(prepared(given), 0).memory.peak_by[static_cast<int>(MemoryUse::activations)]);
  };
  const double whole = activations(config);
  for (const int context : {2, 4}) {
    config.parallelism.context = context;
    // Beside what the layers keep there are the gathered keys and values of a piece of one layer.
    EXPECT_NEAR(activations(config) * context / whole, 1, 0.01) << context;
  }
}

TEST(ContextRuns, TargetsThatEachRankOfAContextCountsAreFound) {
  test::TemporaryPath folder;
  const double one = first_losses(long_config(folder / "run")).front();
  const Config config =
      resolved(on_grid(long_config(folder / "run"), GridShape{.x = 2, .z = 2, .context = 2}));
  run_ranks(4, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    StepInput input = training.input(0);
    EXPECT_NEAR(training.step.run(training.model.context(), input).loss / one, 1, 2e-6);
    input.tokens *= 2;
    EXPECT_LT(training.step.run(training.model.context(), input).loss / one, 0.9);
  });
}

TEST(ContextRuns, ResumeExactlyAndOnOtherContexts) {
  test::TemporaryPath folder;
  const Config whole =
      on_grid(long_config(folder / "whole"), GridShape{.x = 2, .z = 2, .context = 2});
  train_on_threads(whole);
  const std::vector<double> losses = column(metrics_of(whole), "loss");
  const auto resumed_on = [&](const GridShape& grid, const std::string& name) {
    Config rest = on_grid(long_config(folder / name), grid);
    rest.checkpoint.resume = folder / "whole/checkpoints/step-3";
    train_on_threads(rest);
    return column(metrics_of(rest), "loss");
  };
  const std::vector<double> second(losses.begin() + 3, losses.end());
  EXPECT_EQ(resumed_on(GridShape{.x = 2, .z = 2, .context = 2}, "same"), second);
  EXPECT_LE(largest_difference(resumed_on({1, 1, 2, 1}, "whole sequences"), second), 2e-5);
  EXPECT_LE(largest_difference(resumed_on(GridShape{.z = 4, .context = 4}, "four"), second), 2e-5);
}

TEST(ContextRuns, WhatCannotBeCutIsRefusedWithARemedy) {
  Config config = on_grid(long_config("unused"), GridShape{.z = 4, .context = 4});
  validate(config);
  config.training.seq_len = 500;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<Error>(HasSubstr("the next length that can is 512")));
  config.training.seq_len = 512;
  config.parallelism.context = 3;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<Error>(HasSubstr("context = 3 does not divide z = 4")));
}

}  // namespace
