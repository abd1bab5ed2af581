// Runs whose batch, data, rate or loss follow a schedule: the same on every grid, and resumed to
// the bit.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/network/model/model_files.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/train/data_stages.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

GridTrace ten_steps(const Config& given) {
  const PreparedRun run = prepared(given);
  GridTrace result;
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace trace = trace_run(run, world, make_cpu_backend(1), {.steps = 10});
    if (world.rank() == 0) result = std::move(trace);
  });
  return result;
}

/// Compares ten steps on one rank with those on grids of every axis, as `axonn check` does. Returns
/// "" if they agree.
std::string difference_on_grids(const Config& config) {
  const Tolerance tolerance = tolerance_of(config.training.dtype);
  const GridTrace one = ten_steps(config);
  std::vector<GridComparison> comparisons;
  bool agrees = true;
  for (const GridShape grid : {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 2, 2, 1}}) {
    comparisons.push_back(compare(one, ten_steps(on_grid(config, grid)), tolerance));
    agrees = agrees && comparisons.back().agrees;
  }
  return agrees ? "" : comparison_table(comparisons, tolerance);
}

/// Expects that overlap changes no loss.
void expect_overlap_changes_nothing(Config config) {
  config = on_grid(config, {2, 1, 2, 2});
  const GridTrace with = ten_steps(config);
  const GridTrace without = ten_steps(without_overlap(config));
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.norms, without.norms);
}

/// Expects that a run which is resumed from each checkpoint repeats the rest to the bit.
void expect_resumes_to_the_bit(Config config) {
  config.checkpoint.every = 1;
  train_on_threads(config);
  const std::string last = "/checkpoints/step-" + std::to_string(config.training.steps);
  const auto whole = column(metrics_of(config), "loss");
  const auto weights = weights_of(config.output.dir + last);
  for (const int step : {3, 5, 8}) {
    Config resumed = config;
    resumed.output.dir = config.output.dir + "-from-" + std::to_string(step);
    resumed.checkpoint.resume = config.output.dir + "/checkpoints/step-" + std::to_string(step);
    train_on_threads(resumed);
    EXPECT_EQ(column(metrics_of(resumed), "loss"), std::vector(whole.begin() + step, whole.end()));
    EXPECT_TRUE(weights_of(resumed.output.dir + last) == weights) << "resumed after " << step;
  }
}

/// Batches of 4, 4, 8 and then 12 sequences.
Config ramped(const std::string& folder) {
  Config config = tiny_config(folder);
  config.training.batch_ramp = "4 4 16";
  return config;
}

}  // namespace

TEST(BatchRamp, HasTheLossesOfOneRankOnEveryGridWithAndWithoutOverlap) {
  test::TemporaryPath folder;
  Config config = ramped(folder / "run");
  config.optimizer.lr = 1e-3;
  EXPECT_EQ(difference_on_grids(config), "");
  EXPECT_NE(ten_steps(config).losses, ten_steps(tiny_config(folder / "run")).losses);
  expect_overlap_changes_nothing(config);
}

TEST(BatchRamp, GivesEachStepTheBatchOfTheSamplesBeforeIt) {
  test::TemporaryPath folder;
  const Config config = ramped(folder / "run");
  train_on_threads(config);
  EXPECT_THAT(column(metrics_of(config), "batch"),
              ElementsAre(4, 4, 8, 12, 12, 12, 12, 12, 12, 12));
  EXPECT_EQ(metrics_of(config).back().at("tokens"), (4 + 4 + 8 + 7 * 12) * 8);
  EXPECT_THAT(test::slurp(folder / "run/logs/rank-0.log"),
              HasSubstr("batch: rises from 4 to 12 sequences until 16 are consumed"));
  Config plain = tiny_config(folder / "plain");
  train_on_threads(plain);
  EXPECT_FALSE(metrics_of(plain).back().contains("batch"));
}

TEST(BatchRamp, ResumesToTheBitAtEveryBatch) {
  test::TemporaryPath folder;
  expect_resumes_to_the_bit(on_grid(ramped(folder / "run"), {.z = 2}));
}

TEST(BatchRamp, HasTheSamePeakOfMemoryAsItsDryRun) {
  test::TemporaryPath folder;
  const Config config = resolved(on_grid(ramped(folder / "run"), {.z = 2}));
  EXPECT_EQ(config.training.micro_batch, 2);  // 4 / 2: it divides every batch
  train_on_threads(config);
  EXPECT_EQ(dry_run(prepared(config), 0).memory.peak_bytes,
            metrics_of(config).back().at("memory_bytes").get<std::int64_t>());
  EXPECT_NEAR(dry_run(prepared(config), 0).epochs,
              100.0 / 120 * dry_run(prepared(tiny_config(folder / "x")), 0).epochs, 1e-12);
}

TEST(Schedule, ThatCountsSamplesFollowsThemThroughARampAndAResumedRun) {
  test::TemporaryPath folder;
  Config config = ramped(folder / "run");
  config.lr_scheduler = {.kind = ScheduleKind::wsd,
                         .min_lr = 1e-3,
                         .decay = DecayShape::one_minus_sqrt,
                         .warmup_samples = 10,
                         .decay_samples = 50,
                         .total_samples = 100};
  train_on_threads(config);
  const double lr = 1e-2, low = 1e-3;
  const auto falls = [&](double samples) {
    return low + (lr - low) * (1 - std::sqrt((samples - 50) / 50));
  };
  // Samples before the steps: 0, 4, 8, 16, 28, 40, 52, 64, 76, 88.
  const std::vector<double> want{0,  lr * 4 / 10, lr * 8 / 10, lr,        lr,
                                 lr, falls(52),   falls(64),   falls(76), falls(88)};
  EXPECT_THAT(column(metrics_of(config), "lr"),
              testing::Pointwise(testing::DoubleNear(1e-17), want));
  config.output.dir = folder / "other";
  expect_resumes_to_the_bit(config);
}

TEST(OutputZLoss, HasTheLossesOfOneRankOnEveryGridWithAndWithoutOverlap) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.optimizer.lr = 1e-3;
  config.training.z_loss = 0.01;
  EXPECT_EQ(difference_on_grids(config), "");
  expect_overlap_changes_nothing(config);
  // It changes no loss of the first step, but its gradient.
  const Config plain = tiny_config(folder / "plain");
  EXPECT_EQ(ten_steps(config).losses.front(), ten_steps(plain).losses.front());
  EXPECT_NE(ten_steps(config).norms.front(), ten_steps(plain).norms.front());
}

TEST(OutputZLoss, IsReportedWithoutItsWeightLowersTheLogSumsAndResumesToTheBit) {
  test::TemporaryPath folder;
  std::vector<double> one;
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 2}}) {
    Config config = on_grid(tiny_config(folder / to_string(grid)), grid);
    config.optimizer.lr = 1e-3;
    config.training.z_loss = 1;
    train_on_threads(config);
    const auto found = column(metrics_of(config), "output_z_loss");
    if (one.empty()) one = found;
    EXPECT_LE(largest_difference(found, one), 4e-6);  // twice that of the log-sum-exp
    EXPECT_NEAR(found.front(), std::pow(std::log(256), 2), 0.5);
    EXPECT_LT(found.back(), found.front());
  }
  Config config = tiny_config(folder / "resumed");
  config.training.z_loss = 1;
  expect_resumes_to_the_bit(config);
  EXPECT_EQ(dry_run(prepared(config), 0).memory.peak_bytes,
            metrics_of(config).back().at("memory_bytes").get<std::int64_t>());
}

namespace {

/// Steps 1 to 3 of one text, 4 to 7 of another in halves of sequences, and then of the first again.
Config staged(const std::string& folder) {
  Config config = tiny_config(folder);
  config.optimizer.lr = 1e-3;
  config.data.synthetic = 0;
  config.stage = {{.name = "web", .synthetic = 20'000},
                  {.name = "code", .from_step = 4, .synthetic = 9'000, .seq_len = 4},
                  {.name = "end", .from_step = 8, .synthetic = 20'000}};
  return config;
}

/// The names and samples of the stages in the run's checkpoint of this step.
std::vector<std::pair<std::string, int>> places_of(const Config& config, int step) {
  const auto state = nlohmann::json::parse(
      test::slurp(config.output.dir + "/checkpoints/step-" + std::to_string(step) + "/state.json"));
  std::vector<std::pair<std::string, int>> places;
  for (const auto& stage : state.at("data").at("stages"))
    places.emplace_back(stage.at("name"), stage.at("samples_done"));
  return places;
}

/// A run to `folder` that continues another's checkpoint of this step.
Config continued(Config config, const std::string& folder, int step) {
  config.checkpoint.resume = config.output.dir + "/checkpoints/step-" + std::to_string(step);
  config.output.dir = folder;
  return config;
}

}  // namespace

TEST(DataStages, HaveTheLossesOfOneRankOnEveryGridWithAndWithoutOverlap) {
  test::TemporaryPath folder;
  Config config = staged(folder / "run");
  EXPECT_EQ(difference_on_grids(config), "");
  expect_overlap_changes_nothing(config);
}

TEST(DataStages, HaveTheLossesOfOneRankIfRanksShareSequences) {
  test::TemporaryPath folder;
  Config config = staged(folder / "run");
  config.training.seq_len = 512;
  config.training.global_batch = 2;
  config.stage[1].seq_len = 256;
  const auto one = ten_steps(config).losses;
  const auto shared = ten_steps(on_grid(config, {.x = 2, .z = 2, .context = 2})).losses;
  EXPECT_LE(largest_difference(shared, one), 2e-6);
}

TEST(DataStages, TrainOnTheirOwnSequencesAndSayWhichInMetricsLogAndDryRun) {
  test::TemporaryPath folder;
  Config config = staged(folder / "run");
  config.data.shuffle = false;
  train_on_threads(config);
  std::vector<std::string> stages;
  for (const auto& line : metrics_of(config)) stages.push_back(line.at("stage"));
  EXPECT_THAT(stages, ElementsAre("web", "web", "web", "code", "code", "code", "code", "end", "end",
                                  "end"));
  EXPECT_EQ(metrics_of(config).back().at("tokens"), 10 * 12 * 8);
  for (const char* line :
       {"stage: code from step 4: sequences of 4 tokens, 0.0", "stage: end begins with step 8"})
    EXPECT_THAT(test::slurp(folder / "run/logs/rank-0.log"), HasSubstr(line));
  EXPECT_THAT(places_of(config, 5),
              ElementsAre(std::pair("web", 36), std::pair("code", 48), std::pair("end", 0)));
  EXPECT_THAT(places_of(config, 10),
              ElementsAre(std::pair("web", 36), std::pair("code", 96), std::pair("end", 36)));
  EXPECT_EQ(config_of_model(folder / "run/checkpoints").stage.size(), 3u);
  EXPECT_EQ(ModelFiles(folder / "run/checkpoints").tokenizer(), "bytes");
  const DryRun dry = dry_run(prepared(config), 0);
  EXPECT_EQ(dry.memory.peak_bytes,
            metrics_of(config).back().at("memory_bytes").get<std::int64_t>());
  EXPECT_THAT(dry.stages, ElementsAre(HasSubstr("web from step 1: sequences of 8 tokens"),
                                      HasSubstr("code from step 4"), HasSubstr("end from step 8")));

  // The same as runs of each data alone: the first stage, and the second from its weights.
  Config web = tiny_config(folder / "web");
  web.optimizer.lr = 1e-3;
  web.data.shuffle = false;
  web.checkpoint.every = 1;
  train_on_threads(web);
  const auto losses = column(metrics_of(config), "loss"), alone = column(metrics_of(web), "loss");
  EXPECT_EQ(std::vector(losses.begin(), losses.begin() + 3),
            std::vector(alone.begin(), alone.begin() + 3));
  Config code = continued(web, folder / "code", 3);
  code.data.synthetic = 9'000;
  code.training.seq_len = 4;
  code.training.global_batch = 24;
  code.model.positions = 8;
  code.checkpoint.changed_data = ChangedData::restart;
  train_on_threads(code);
  const auto next = column(metrics_of(code), "loss");
  EXPECT_LE(largest_difference({losses.begin() + 3, losses.begin() + 7},
                               {next.begin(), next.begin() + 4}),
            2e-6);
}

TEST(DataStages, HaveEachTheirOwnOrderOfTheSameData) {
  test::TemporaryPath folder;
  Config config = staged(folder / "run");
  const auto second_sequences = [&] {
    std::vector<std::vector<std::int32_t>> all;
    for (const BatchSource& source : stage_sources(config, open_stages(config, {}))) {
      Sequence one;
      source.sequences->read(1, one);
      all.push_back(one.ids);
    }
    return all;
  };
  EXPECT_NE(second_sequences()[0], second_sequences()[2]);
  EXPECT_EQ(second_sequences(), second_sequences());
  config.data.shuffle = false;
  EXPECT_EQ(second_sequences()[0], second_sequences()[2]);
}

TEST(DataStages, ResumeToTheBitInEveryStage) {
  test::TemporaryPath folder;
  expect_resumes_to_the_bit(on_grid(staged(folder / "run"), {.x = 2, .z = 2}));
}

TEST(DataStages, GoOnByTheirNamesWhenTheirStepsChange) {
  test::TemporaryPath folder;
  Config config = staged(folder / "run");
  train_on_threads(config);
  // The second stage is left out from now on; the third begins at once, and the first returns.
  Config later = continued(config, folder / "later", 5);
  later.stage = {later.stage[2], later.stage[0]};
  later.stage[0].from_step = 6;
  later.stage[1].from_step = 8;
  train_on_threads(later);
  EXPECT_THAT(places_of(later, 10),
              ElementsAre(std::pair("end", 24), std::pair("web", 36 + 36), std::pair("code", 48)));
  later.stage[0].from_step = 7;
  later.output.dir = folder / "none";
  EXPECT_THAT(failure_of(later), HasSubstr("step 6 has no data: the first stage, end, begins with "
                                           "step 7; set its from_step"));
}

TEST(DataStages, RefuseToContinueWithOtherDataOfAStageThatIsNotOver) {
  test::TemporaryPath folder;
  const Config config = staged(folder / "run");
  train_on_threads(config);
  const auto change = [&](int step, auto&& how) {
    Config changed = continued(config, folder / "changed", step);
    changed.output.overwrite = true;
    how(changed);
    return changed;
  };
  const auto others = [](int stage) {
    return [stage](Config& c) { c.stage[stage].synthetic -= 1'000; };
  };
  EXPECT_THAT(failure_of(change(5, others(1))),
              HasSubstr("the training data of stage code are others"));
  EXPECT_EQ(failure_of(change(5, others(0))), "");  // over
  EXPECT_EQ(failure_of(change(5, others(2))), "");  // not begun
  EXPECT_THAT(failure_of(change(5, [](Config& c) { c.stage[1].seq_len = 2; })),
              HasSubstr("seq_len of stage code was 4 and is 2; set it to 4"));
  EXPECT_THAT(failure_of(change(5, [](Config& c) { c.stage[1].name = "text"; })),
              HasSubstr("it knows no stage text, which begins before its step; set from_step of "
                        "the stage to 6"));
  const auto plain = [](Config& c) {
    c.stage.clear();
    c.data.synthetic = 20'000;
  };
  EXPECT_THAT(failure_of(change(5, plain)), HasSubstr("it was written by a run with stages"));
  Config anew = change(5, others(1));
  anew.checkpoint.changed_data = ChangedData::restart;
  EXPECT_EQ(failure_of(anew), "");
  EXPECT_THAT(places_of(anew, 10),
              ElementsAre(std::pair("web", 36), std::pair("code", 48), std::pair("end", 36)));
}
