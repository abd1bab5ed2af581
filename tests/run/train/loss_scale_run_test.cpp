// Trainings in f16: overflows are skipped and counted, alike on every grid, and resumed to the bit.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/files.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/run/records/loss_scale.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Le;

namespace {

/// Its first scale is so large that the gradients of the first steps overflow; the scale also
/// doubles within the run, after three steps.
Config overflowing(const std::string& folder) {
  Config config = tiny_config(folder);
  config.training.dtype = DType::f16;
  config.training.loss_scale.initial = 0x1p26;
  config.training.loss_scale.window = 3;
  return config;
}

std::vector<std::string> skipped_of(const Config& config) {
  std::vector<std::string> steps;
  for (const auto& line : metrics_of(config))
    steps.push_back(line.value("skipped", false) ? "skipped" : "done");
  return steps;
}

std::string checkpoint(const Config& config, int step) {
  return config.output.dir + "/checkpoints/step-" + std::to_string(step);
}

}  // namespace

TEST(LossScaleRun, OverflowsAreSkippedAndHalveTheScaleAndThenItGrows) {
  test::TemporaryPath folder;
  Config config = overflowing(folder.path());
  config.checkpoint.every = 1;
  train_on_threads(config);
  const auto lines = metrics_of(config);
  const auto scales = column(lines, "loss_scale"), skipped = column(lines, "skipped_steps");
  std::int64_t overflows = 0, in_a_row = 0, grown = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool overflow = lines[i].value("skipped", false);
    EXPECT_EQ(lines[i].at("grad_norm").is_null(), overflow) << "infinity, or a number";
    EXPECT_FALSE(lines[i].at("loss").is_null());
    overflows += overflow ? 1 : 0;
    EXPECT_EQ(skipped[i], static_cast<double>(overflows));
    in_a_row = overflow ? 0 : in_a_row + 1;
    if (i + 1 == lines.size()) break;
    const double factor = overflow ? 0.5 : in_a_row == 3 ? 2 : 1;
    if (factor == 2) {
      in_a_row = 0;
      ++grown;
    }
    EXPECT_EQ(scales[i + 1], factor * scales[i]) << i;
    const auto weights = [&](std::size_t step) {
      return weights_of(checkpoint(config, static_cast<int>(step)));
    };
    if (i > 0) {
      EXPECT_EQ(weights(i + 1) == weights(i), overflow) << i;
    }
  }
  EXPECT_GE(overflows, 2);
  EXPECT_GE(grown, 1);
  EXPECT_THAT(test::slurp(folder / "logs/rank-0.log"),
              HasSubstr("step 1 skipped: its gradients overflow with a loss scale of 67108864; the "
                        "next step's is 33554432"));
}

TEST(LossScaleRun, ASkippedStepIsNoUpdateForTheBiasCorrectionsButForTheSchedule) {
  test::TemporaryPath folder;
  Config config = overflowing(folder / "overflowing"), usual = config;
  usual.output.dir = folder / "usual";
  usual.training.loss_scale.initial = 65536;
  config.lr_scheduler.warmup_steps = usual.lr_scheduler.warmup_steps = 0;
  // Adam's first update of a weight has the size of the learning rate, whatever its gradient, only
  // if its bias corrections are those of a first update.
  config.optimizer.weight_decay = usual.optimizer.weight_decay = 0;
  config.checkpoint.every = 1;
  train_on_threads(config);
  train_on_threads(usual);
  EXPECT_EQ(column(metrics_of(config), "lr"), column(metrics_of(usual), "lr"));
  const auto steps = skipped_of(config);
  const auto first =
      static_cast<int>(std::ranges::find(steps, std::string("done")) - steps.begin());
  ASSERT_GT(first, 0);
  const auto before = weights_of(checkpoint(config, first)).at("wpe.weight"),
             after = weights_of(checkpoint(config, first + 1)).at("wpe.weight");
  const double lr = metrics_of(config)[static_cast<std::size_t>(first)].at("lr");
  double most = 0;
  for (std::size_t i = 0; i < before.size(); ++i)
    most = std::max(most, std::abs(double{after[i]} - before[i]));
  EXPECT_NEAR(most, lr, 1e-3 * lr);
}

TEST(LossScaleRun, EveryGridSkipsTheSameStepsAndHasTheLossesOfOneRank) {
  test::TemporaryPath folder;
  const Config one = overflowing(folder / "one");
  train_on_threads(one);
  for (const GridShape grid : {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 2, 1, 1}, GridShape{1, 2, 2, 1},
                               GridShape{2, 1, 1, 3}, GridShape{1, 1, 3, 2}}) {
    Config other = on_grid(one, grid);
    other.output.dir = folder / to_string(grid);
    train_on_threads(other);
    EXPECT_THAT(
        largest_difference(column(metrics_of(other), "loss"), column(metrics_of(one), "loss")),
        Le(tolerance_of(DType::f16).loss))
        << to_string(grid);
    EXPECT_EQ(column(metrics_of(other), "loss_scale"), column(metrics_of(one), "loss_scale"))
        << to_string(grid);
    EXPECT_EQ(skipped_of(other), skipped_of(one)) << to_string(grid);
    Config plain = without_overlap(other);
    plain.output.dir += "-plain";
    train_on_threads(plain);
    EXPECT_EQ(column(metrics_of(plain), "loss"), column(metrics_of(other), "loss"))
        << to_string(grid);
  }
}

TEST(LossScaleRun, HasTheLossesAndNormsOfTorchUnderAutocastWithAGradScaler) {
  // Of torch 2.13 and transformers 5.23 on a CPU: this model's GPT2LMHeadModel, with the initial
  // weights of this run, under autocast to float16, torch.amp.GradScaler("cpu"), gradients clipped
  // to a norm of 1, AdamW. In f32 both programs have the same losses to 1e-6.
  const std::vector<double> losses{5.551718, 5.316289, 5.046640, 4.823061, 4.498917,
                                   4.237374, 3.982921, 3.717075, 3.476203, 3.257131},
      norms{1.630149, 1.738968, 1.789606, 1.659608, 0.941961,
            0.996114, 1.023434, 0.893845, 0.835082, 0.800209};
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  std::string text;
  for (int i = 0; i <= 8 * 12 * 12; ++i) text += static_cast<char>(32 + (i * i * 31 + i * 7) % 96);
  write_file_atomically(folder / "text.txt", text);
  config.data = {.text = {folder / "text.txt"}, .tokenizer = "bytes", .shuffle = false};
  config.optimizer.weight_decay = 0;
  config.lr_scheduler = {.kind = ScheduleKind::constant};
  config.training.dtype = DType::f16;
  train_on_threads(config);
  // Which values between operations autocast keeps in f32 is its own choice.
  EXPECT_THAT(largest_difference(column(metrics_of(config), "loss"), losses), Le(2e-4));
  EXPECT_THAT(largest_difference(column(metrics_of(config), "grad_norm"), norms), Le(2e-3));
  EXPECT_THAT(column(metrics_of(config), "loss_scale"), Each(65536));
}

TEST(LossScaleRun, HasTheLossesOfF32ToHalfPrecision) {
  test::TemporaryPath folder;
  Config half = tiny_config(folder / "f16"), full = tiny_config(folder / "f32");
  half.training.dtype = DType::f16;
  train_on_threads(half);
  train_on_threads(full);
  EXPECT_THAT(skipped_of(half), Each("done"));
  EXPECT_THAT(
      largest_difference(column(metrics_of(half), "loss"), column(metrics_of(full), "loss")),
      AllOf(testing::Gt(0), Le(tolerance_of(DType::f16).loss)));
}

TEST(LossScaleRun, TheScaleChangesNoGradientOfAnyTermOfTheLoss) {
  // Plain gradient descent without clipping: a gradient of another scale shows in the losses.
  test::TemporaryPath folder;
  Config full = tiny_config(folder / "f32");
  full.model.family = ModelFamily::llama;
  full.model.ffn = 48;
  full.model.experts = 4;
  full.model.experts_per_token = 2;
  full.model.expert_ffn = 24;
  full.training.balance = {.weight = 1, .z = 0.1};
  full.training.z_loss = 0.1;
  full.training.max_norm = 0;
  full.training.steps = 4;
  full.optimizer = {.kind = OptimizerKind::sgd, .lr = 0.1};
  train_on_threads(full);
  for (const double scale : {1024.0, 65536.0}) {
    Config half = full;
    half.output.dir = folder / std::to_string(scale);
    half.training.dtype = DType::f16;
    half.training.loss_scale.fixed = scale;
    train_on_threads(half);
    for (const char* key : {"loss", "balance_loss", "router_z_loss", "output_z_loss"})
      EXPECT_THAT(largest_difference(column(metrics_of(half), key), column(metrics_of(full), key)),
                  Le(tolerance_of(DType::f16).loss))
          << key << " at " << scale;
    EXPECT_THAT(largest_difference(column(metrics_of(half), "grad_norm"),
                                   column(metrics_of(full), "grad_norm")),
                Le(tolerance_of(DType::f16).norm));
  }
}

TEST(LossScaleRun, IsResumedToTheBitAcrossASkippedStepAndAGrowth) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}})
    for (const std::int64_t hysteresis : {1, 2}) {
      Config straight = on_grid(overflowing(folder / to_string(grid)), grid);
      straight.output.dir += std::to_string(hysteresis);
      straight.training.loss_scale.hysteresis = hysteresis;
      straight.training.steps = 16;
      straight.checkpoint.every = 1;
      train_on_threads(straight);
      const auto all = metrics_of(straight);
      for (const int step : {1, 2, 4, 6, 8, 11}) {
        Config resumed = straight;
        resumed.output.dir += "-resumed-" + std::to_string(step);
        resumed.checkpoint.resume = checkpoint(straight, step);
        resumed.checkpoint.every = 16;
        train_on_threads(resumed);
        const std::vector<nlohmann::json> expected(all.begin() + step, all.end());
        const auto got = metrics_of(resumed);
        for (const char* key : {"step", "loss", "loss_scale", "skipped_steps"})
          EXPECT_EQ(column(got, key), column(expected, key)) << key << " from step " << step;
        EXPECT_EQ(weights_of(checkpoint(resumed, 16)), weights_of(checkpoint(straight, 16)));
      }
    }
}

TEST(LossScaleRun, EndsWithTheRemedyWhereTheScaleCannotBeHalved) {
  test::TemporaryPath folder;
  Config config = overflowing(folder.path());
  config.training.loss_scale.min = 0x1p25;
  EXPECT_THAT(failure_of(config),
              AllOf(HasSubstr("step 2: "), HasSubstr("it arose first in layer "),
                    HasSubstr("The gradients overflow f16 at the smallest scale that "
                              "training.loss_scale.min = 3.35544e+07 allows"),
                    HasSubstr("training.dtype bf16 or f32")));
}

TEST(LossScaleRun, AnOverflowOfTheLossEndsTheRunAsInOtherTypes) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.training.dtype = DType::f16;
  config.optimizer.lr = 1e30;
  config.lr_scheduler.warmup_steps = 0;
  EXPECT_THAT(failure_of(config),
              AllOf(HasSubstr("step 2: the loss is "), HasSubstr("Lower optimizer.lr, or clip")));
}
