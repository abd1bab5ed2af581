// Training with a teacher; tests/compute/ops/divergence_test.cpp has the divergences.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/options/options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"

#include "tests/support/dry_peak.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// The checkpoint of a llama of this width, whose weights follow from a seed.
std::string stored_llama(const test::TemporaryPath& folder, const std::string& name,
                         std::int64_t layers, std::int64_t vocab = 0) {
  const std::string path = folder / name;
  Config config = tiny_config(path);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  config.model.layers = layers;
  config.model.init_std = 0.3;  // so that distributions differ
  if (vocab > 0) config.model.vocab = vocab;
  if (!std::filesystem::exists(path))
    test::save_checkpoint(path, resolved(config.model, config.model.vocab, 48), {});
  return path;
}

/// tiny_config that learns from a teacher with more layers.
Config distilled(const test::TemporaryPath& folder, const std::string& name, double beta = 0.5) {
  Config config = tiny_config(folder / name);
  config.model.path = stored_llama(folder, "student", 1);
  config.distill = {.teacher = stored_llama(folder, "teacher", 2), .beta = beta};
  return config;
}

std::vector<double> losses_of(const Config& config) { return first_losses(stored(config)); }

}  // namespace

TEST(Distillation, LossesAreThoseOfOneRankOnEveryGrid) {
  test::TemporaryPath folder;
  for (const double beta : {0.0, 0.5, 1.0}) {
    Config config = distilled(folder, "run", beta);
    config.distill.temperature = beta == 0 ? 2 : 1;
    const std::vector<double> one = losses_of(config);
    ASSERT_EQ(one.size(), 3U);
    EXPECT_GT(one.front(), 0);
    for (const GridShape grid :
         {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2}, GridShape{.data = 3},
          GridShape{2, 2, 1, 1}, GridShape{2, 1, 2, 1}}) {
      Config on = on_grid(config, grid);
      EXPECT_LE(largest_difference(losses_of(on), one), 2e-5) << to_string(grid);
      if (grid.x * grid.y == 4) {
        EXPECT_EQ(losses_of(without_overlap(on)), losses_of(on)) << to_string(grid);
      }
      on.parallelism.sequence_parallel = true;
      EXPECT_LE(largest_difference(losses_of(on), one), 2e-5) << to_string(grid);
    }
    config.training.micro_batch = 4;
    config.parallelism.chunks = 2;
    config.activation_checkpoint.mode = RecomputeMode::full;
    EXPECT_LE(largest_difference(losses_of(config), one), 2e-5);
  }
}

TEST(Distillation, OfTheLikeliestTokensIsThatOfOneRankOnEveryGrid) {
  test::TemporaryPath folder;
  for (const double beta : {0.0, 0.5, 1.0}) {
    Config config = distilled(folder, "run", beta);
    const std::vector<double> all = losses_of(config);
    config.distill.top_k = config.model.vocab;
    EXPECT_LE(largest_difference(losses_of(config), all), 2e-5);
    config.distill.top_k = 5;
    const std::vector<double> one = losses_of(config);
    EXPECT_LT(one.front(), all.front() - 1e-3) << "a coarser partition has a smaller divergence";
    EXPECT_GT(one.front(), 0);
    for (const GridShape grid :
         {GridShape{.x = 3}, GridShape{.z = 2}, GridShape{2, 2, 1, 1}, GridShape{2, 1, 2, 1}}) {
      Config on = on_grid(config, grid);
      EXPECT_LE(largest_difference(losses_of(on), one), 2e-5) << to_string(grid);
      on.parallelism.sequence_parallel = true;
      EXPECT_LE(largest_difference(losses_of(on), one), 2e-5) << to_string(grid);
    }
  }
}

TEST(Distillation, OfTheTeacherItselfIsZeroAndAStudentComesCloser) {
  test::TemporaryPath folder;
  Config config = distilled(folder, "same");
  config.distill.teacher = config.model.path;
  EXPECT_NEAR(losses_of(config).front(), 0, 1e-6);

  config = distilled(folder, "run");
  config.training.steps = 40;
  config.optimizer.lr = 3e-3;
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  EXPECT_LT(column(lines, "loss").back(), 0.5 * column(lines, "loss").front());
  EXPECT_GT(column(lines, "cross_entropy").front(), 0);
  EXPECT_GT(column(lines, "teacher_cross_entropy").front(), 0);
}

TEST(Distillation, ResumesToTheBit) {
  test::TemporaryPath folder;
  Config config = distilled(folder, "whole");
  train_on_threads(stored(config));
  const std::vector<double> whole = column(metrics_of(config), "loss");
  Config first = distilled(folder, "parts");
  first.training.steps = 5;
  first.lr_scheduler.kind = ScheduleKind::constant;
  config.output.dir = folder / "constant";
  config.lr_scheduler.kind = ScheduleKind::constant;
  train_on_threads(stored(config));
  train_on_threads(stored(first));
  first.training.steps = 10;
  first.checkpoint.resume = first.output.dir + "/checkpoints";
  train_on_threads(stored(first));
  EXPECT_EQ(column(metrics_of(first), "loss"), column(metrics_of(config), "loss"));
  EXPECT_EQ(weights_of(first.output.dir + "/checkpoints/step-10"),
            weights_of(config.output.dir + "/checkpoints/step-10"));
}

TEST(Distillation, TheMemoryOfBothModelsIsThatOfTheDryRun) {
  test::TemporaryPath folder;
  Config some = distilled(folder, "run");
  some.distill.top_k = 5;
  expect_dry_peak(prepared(stored(on_grid(some, {.x = 2, .z = 2}))));
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}})
    expect_dry_peak(prepared(stored(on_grid(distilled(folder, "run"), grid))));
}

TEST(Distillation, TrainsAdaptersAlone) {
  test::TemporaryPath folder;
  Config config = distilled(folder, "run");
  config.model.lora = {.rank = 4, .alpha = 8};
  const std::vector<double> one = losses_of(config);
  EXPECT_LT(one.back(), one.front());
  EXPECT_LE(largest_difference(losses_of(on_grid(config, {.x = 2, .z = 2})), one), 2e-5);
}

TEST(Distillation, RefusesWhatItCannotDoAndNamesTheKey) {
  test::TemporaryPath folder;
  int number = 0;
  const auto refusal = [&](const auto& change) {
    Config config = distilled(folder, "run" + std::to_string(++number));
    change(config);
    return failure_of(stored(config));
  };
  EXPECT_THAT(
      refusal([&](Config& c) { c.distill.teacher = stored_llama(folder, "other", 1, 300); }),
      HasSubstr("has a vocabulary of 300 tokens"));
  EXPECT_THAT(refusal([&](Config& c) { c.distill.teacher = folder / "nothing"; }),
              HasSubstr("[distill] teacher: there is no " + (folder / "nothing")));
  EXPECT_THAT(refusal([](Config& c) { c.distill.beta = 1.5; }), HasSubstr("[distill] beta = 1.5"));
  EXPECT_THAT(refusal([](Config& c) { c.distill.top_k = 5000; }),
              HasSubstr("[distill] top_k = 5000 of a vocabulary"));
  EXPECT_THAT(refusal([](Config& c) { c.distill.temperature = 0; }),
              HasSubstr("[distill] temperature = 0"));
  EXPECT_THAT(refusal([](Config& c) { c.training.z_loss = 0.1; }), HasSubstr("z_loss"));
}
