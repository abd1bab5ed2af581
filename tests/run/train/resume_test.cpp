// Which checkpoints a run continues, when it writes them, and which one it keeps as the best.
#include "axonn/run/train/resume.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include <gmock/gmock.h>

#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

namespace {

std::string checkpoints(const Config& config) { return config.output.dir + "/checkpoints"; }

std::string log_of(const Config& config) {
  return test::slurp(config.output.dir + "/logs/rank-0.log");
}

Config validated(const std::string& folder) {
  Config config = tiny_config(folder);
  config.checkpoint.every = 0;
  config.checkpoint.keep = 1;
  config.training.eval_every = 1;
  config.training.eval_batches = 1;
  config.optimizer.lr = 1;  // the loss rises after the first step
  config.lr_scheduler.kind = ScheduleKind::constant;
  return config;
}

/// The step after which the run's validation loss is the lowest.
std::int64_t best_of(const Config& config) {
  const auto losses = column(metrics_of(config), "val_loss");
  return std::ranges::min_element(losses) - losses.begin() + 1;
}

}  // namespace

TEST(Resume, OfAnotherModelOptimizerOrAdapterIsRefusedWithTheKeysAndChangesNothing) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.model.lora.rank = 2;
  train_on_threads(config);
  config.checkpoint.resume = "auto";
  config.training.steps = 12;
  const auto before = test::names_in(checkpoints(config));
  const auto refusal = [&](auto change) {
    Config other = config;
    change(other);
    return failure_of(other);
  };
  const std::string newest = checkpoints(config) + "/step-10";
  EXPECT_THAT(refusal([](Config& c) { c.optimizer.kind = OptimizerKind::sgd; }),
              AllOf(HasSubstr("cannot continue " + newest),
                    HasSubstr("optimizer.kind was \"adamw\" and is \"sgd\"; set it as it was"),
                    HasSubstr("model.path = " + newest), HasSubstr("has the state exp_avg")));
  EXPECT_THAT(refusal([](Config& c) { c.optimizer.kind = OptimizerKind::ademamix; }),
              AllOf(HasSubstr("optimizer.kind was"), HasSubstr("it has no exp_avg_slow")));
  EXPECT_THAT(refusal([](Config& c) { c.model.lora.rank = 3; }),
              HasSubstr("lora.rank was 2 and is 3"));
  EXPECT_THAT(refusal([](Config& c) { c.model.layers = 1; }),
              HasSubstr("model.layers was 2 and is 1"));
  EXPECT_EQ(test::names_in(checkpoints(config)), before);

  Config other = config;  // the run may go on, but the user should know
  other.model.norm_eps = 1e-3;
  other.model.lora.alpha = 4;
  EXPECT_EQ(failure_of(other), "");
  EXPECT_THAT(log_of(other), AllOf(HasSubstr("model.norm_eps was "), HasSubstr("lora.alpha was ")));
}

TEST(Resume, WithoutACheckpointSaysThatTheRunStartsAnew) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.training.steps = 2;
  config.checkpoint.resume = "auto";
  train_on_threads(config);
  const std::string line = "no checkpoint in " + checkpoints(config) + ": starting at step 1";
  EXPECT_THAT(log_of(config), HasSubstr(line));
  config.output.dir = folder / "new";
  config.checkpoint.resume = "";
  train_on_threads(config);
  EXPECT_THAT(log_of(config), Not(HasSubstr("no checkpoint in")));
}

TEST(Checkpoints, AreWrittenByTheClockOfRankZeroWithoutChangingTheLosses) {
  test::TemporaryPath folder;
  Config plain = tiny_config(folder / "plain");
  plain.checkpoint.every = 0;
  train_on_threads(plain);
  EXPECT_THAT(test::names_in(checkpoints(plain)), ElementsAre("latest", "step-10"));
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2, .data = 2}}) {
    Config config = on_grid(plain, grid);
    config.output.dir = folder / to_string(grid);
    config.checkpoint.async = false;
    config.checkpoint.every_minutes = 4;
    double now = 0;  // a minute passes at each look: at the start, before each step, at each save
    train_on_threads(config, {.clock = [&] { return now += 60; }});
    EXPECT_THAT(test::names_in(checkpoints(config)),
                ElementsAre("latest", "step-10", "step-4", "step-8"));
    EXPECT_LE(
        largest_difference(column(metrics_of(config), "loss"), column(metrics_of(plain), "loss")),
        grid.ranks() == 1 ? 0 : 1e-5);
  }
}

TEST(Checkpoints, OfTheLowestValidationLossStayAndAreTakenByTheirName) {
  test::TemporaryPath folder;
  Config config = validated(folder / "out");
  config.checkpoint.best = true;
  train_on_threads(config);
  const std::int64_t best = best_of(config);
  ASSERT_LT(best, 10);
  const std::string own = checkpoints(config), name = "step-" + std::to_string(best);
  EXPECT_THAT(test::names_in(own),
              testing::UnorderedElementsAre("best", "latest", name, "step-10"));
  EXPECT_EQ(test::slurp(own + "/best"), name + "\n");
  EXPECT_EQ(ModelFiles(own + "/best").checkpoint()->folder(), own + '/' + name);
  EXPECT_EQ(config_of_model(own + "/best").model.hidden, config.model.hidden);
}

TEST(Patience, EndsTheRunWithACheckpointAndAResumedRunEndsAfterTheSameStep) {
  test::TemporaryPath folder;
  Config config = validated(folder / "out");
  config.training.steps = 30;
  config.training.patience = 3;
  EXPECT_EQ(train_on_threads(config), TrainEnd::finished);
  const std::int64_t best = best_of(config), last = std::ssize(metrics_of(config));
  EXPECT_EQ(last, best + 3);
  EXPECT_THAT(log_of(config), HasSubstr("ended early after step " + std::to_string(last)));
  EXPECT_TRUE(fs::exists(checkpoints(config) + "/step-" + std::to_string(last)));

  config.checkpoint.resume = "auto";
  EXPECT_EQ(train_on_threads(config), TrainEnd::finished);
  EXPECT_EQ(std::ssize(metrics_of(config)), last);
  EXPECT_THAT(log_of(config),
              AllOf(HasSubstr("nothing to do: "), HasSubstr("raise training.patience to go on")));

  // Such a run leaves the files of the run that did all, whatever they hold now.
  const std::string metrics = config.output.dir + "/metrics.jsonl",
                    chart = config.output.dir + "/loss.svg";
  std::ofstream(metrics, std::ios::app) << "{\"step\": 31, \"loss\": 1}\n";
  const std::string before = test::slurp(metrics);
  fs::remove(chart);
  TrainOptions part;
  part.part_of_more = true;
  const std::string log = log_of(config);
  EXPECT_EQ(train_on_threads(config, part), TrainEnd::finished);
  EXPECT_EQ(test::slurp(metrics), before);
  EXPECT_FALSE(fs::exists(chart));
  EXPECT_THAT(log_of(config).substr(log.size()), Not(HasSubstr("nothing to do")));

  Config parts = config;
  parts.output.dir = folder / "parts";
  parts.training.steps = last - 1;
  train_on_threads(parts);
  parts.training.steps = 30;
  train_on_threads(parts);
  Config whole = config;
  whole.output.dir = folder / "whole";
  train_on_threads(whole);
  EXPECT_EQ(column(metrics_of(parts), "val_loss"), column(metrics_of(whole), "val_loss"));
}

TEST(Resume, WithOtherHyperparametersGoesOnAndNamesEachOneAndTheRateBeforeAndNow) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.training.steps = 6;
  config.lr_scheduler.kind = ScheduleKind::cosine;
  config.optimizer.lr = 0.01;
  train_on_threads(config);
  config.checkpoint.resume = "auto";
  config.training.steps = 12;
  config.training.global_batch = 24;
  config.training.max_norm = 0.5;
  config.optimizer.lr = 0.02;
  config.optimizer.beta2 = 0.9;
  config.optimizer.eps = 1e-7;
  EXPECT_EQ(train_on_threads(config), TrainEnd::finished);
  const std::string log = log_of(config);
  for (const char* changed :
       {"training.steps was 6 and is 12", "training.global_batch was 12 and is 24",
        "training.max_norm was ", "optimizer.lr was 0.01 and is 0.02", "optimizer.beta2 was ",
        "optimizer.eps was ", "the learning rate of step 7 was 0 and is 0.0"})
    EXPECT_THAT(log, HasSubstr(changed));
  EXPECT_THAT(
      log, AllOf(Not(HasSubstr("optimizer.beta1 was")), Not(HasSubstr("lr_scheduler.min_lr was"))));
}

TEST(Resume, WithTheSameHyperparametersWarnsOfNone) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  for (const ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::wsd}) {
    config.output.dir = folder / std::to_string(static_cast<int>(kind));
    config.lr_scheduler.kind = kind;
    config.checkpoint.resume = "";
    train_on_threads(config);
    std::filesystem::remove_all(checkpoints(config) + "/step-10");
    config.checkpoint.resume = "auto";
    EXPECT_EQ(train_on_threads(on_grid(config, {.z = 2})), TrainEnd::finished);
    EXPECT_THAT(log_of(config),
                AllOf(HasSubstr("the next step is 6"), Not(HasSubstr("do not go on"))));
  }
}

TEST(Resume, FromALocalCheckpointThatVanishesIsNoUsageErrorSinceAnotherStartFindsAnother) {
  test::TemporaryPath folder;
  const Config config = tiny_config(folder / "out");
  train_on_threads(config);
  const auto world = make_self();
  Training training(prepared(config), *world, make_cpu_backend(1));
  CheckpointReader local(*world, checkpoints(config));
  fs::remove_all(local.folder());
  try {
    resume(training.model, training.optimizer, std::move(local));
    FAIL() << "it is not there";
  } catch (const AgreedError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot open"), HasSubstr("start again")));
  }
}
