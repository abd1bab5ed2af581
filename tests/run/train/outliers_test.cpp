#include "axonn/run/records/outliers.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

OutlierMeans after_twenty_steps_of_one() {
  OutlierMeans means;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(means.accept({.factor = 2}, 1, 1));
  return means;
}

}  // namespace

TEST(Outliers, ALossOrNormAboveTheFactorTimesTheMeanIsAnOutlier) {
  OutlierMeans means = after_twenty_steps_of_one();
  EXPECT_FALSE(means.accept({.factor = 2}, 2.01, 1));
  EXPECT_FALSE(means.accept({.factor = 2}, 1, 2.01));
  EXPECT_TRUE(means.accept({.factor = 2}, 1.99, 1.99));
}

TEST(Outliers, OneCountsInTheMeanAsTheFactorTimesTheMeanHoweverLargeItIs) {
  OutlierMeans means = after_twenty_steps_of_one();
  EXPECT_FALSE(means.accept({.factor = 2}, 1e9, 1));
  EXPECT_DOUBLE_EQ(means.loss, 1 + 1.0 / 21);
  EXPECT_EQ(means.skipped, 1);
  EXPECT_TRUE(means.accept({.factor = 2}, 1, 1));
  EXPECT_EQ(means.skipped, 0);
}

TEST(Outliers, ALossThatStaysHighIsAcceptedAfterSomeSteps) {
  OutlierMeans means = after_twenty_steps_of_one();
  while (means.skipped < 100 && !means.accept({.factor = 2}, 4, 1)) {
  }
  EXPECT_GT(means.steps, 30);
  EXPECT_EQ(means.skipped, 0);
}

TEST(Outliers, TheFirstStepsAreNeverOutliers) {
  OutlierMeans means;
  EXPECT_TRUE(means.accept({.factor = 2}, 1, 1));
  EXPECT_TRUE(means.accept({.factor = 2}, 50, 50));
}

TEST(Outliers, FactorZeroAcceptsEverything) {
  EXPECT_TRUE(after_twenty_steps_of_one().accept({.factor = 0}, 1e9, 1e9));
}

TEST(Outliers, ContinueWithTheMeansOfAnEarlierRun) {
  OutlierMeans means{.loss = 1, .norm = 1, .steps = 20};
  EXPECT_FALSE(means.accept({.factor = 2}, 3, 1));
}

TEST(Outliers, AValueBeyondTheDeviationsOfTheLastStepsIsAnOutlierFromThe64thOn) {
  const auto value = [](int i) { return 2 + 0.1 * std::sin(i); };
  for (const bool of_norm : {false, true}) {
    OutlierMeans means;
    std::vector<double> last;
    for (int i = 0; i < 300; ++i) {
      // Mean and deviation of the last 128 values in plain loops.
      double mean = 0, squares = 0;
      for (const double x : last) mean += x / static_cast<double>(last.size());
      for (const double x : last) squares += (x - mean) * (x - mean);
      const double limit = mean + 6 * std::sqrt(squares / (static_cast<double>(last.size()) - 1));
      const auto accepts = [&](double x) {
        OutlierMeans copy = means;
        return copy.accept({.deviations = 6}, of_norm ? 1 : x, of_norm ? x : 1);
      };
      EXPECT_EQ(accepts(1e9), last.size() < 64) << i;
      if (last.size() >= 64) {
        EXPECT_TRUE(accepts(limit * (1 - 1e-12))) << i;
        EXPECT_FALSE(accepts(limit * (1 + 1e-12))) << i;
      }
      EXPECT_TRUE(means.accept({.deviations = 6}, of_norm ? 1 : value(i), of_norm ? value(i) : 1));
      last.push_back(value(i));
      if (last.size() > 128) last.erase(last.begin());
    }
  }
}

TEST(Outliers, OneCountsAsItsLimitInTheDeviationToo) {
  const double limit = 1.005 + 6 * 0.005 * std::sqrt(100.0 / 99);
  for (const bool of_norm : {false, true}) {
    OutlierMeans means;
    const auto accept = [&](double x) {
      return means.accept({.deviations = 6}, of_norm ? 1 : x, of_norm ? x : 1);
    };
    for (int i = 0; i < 100; ++i) accept(1 + 0.01 * (i % 2));
    EXPECT_FALSE(accept(1e9));
    EXPECT_NEAR((of_norm ? means.norms : means.losses).back(), limit, 1e-12);
    EXPECT_EQ((of_norm ? means.losses : means.norms).back(), 1);
    EXPECT_EQ(means.skipped_total, 1);
    EXPECT_TRUE(accept(1));
    EXPECT_EQ(means.skipped, 0);
    EXPECT_EQ(means.skipped_total, 1);
  }
}

namespace {

/// A run whose step 70 has an outlier: step n reads window n - 1, whose targets are two letters.
Config with_an_outlier(const test::TemporaryPath& folder) {
  std::string text;
  for (int i = 0; i < 8 * 80 + 1; ++i) text += i % 3 == 0 ? 'b' : 'a';
  text.replace(8 * 69 + 1, 8, "qZ#7w!kM");
  test::spill(folder / "text.txt", text);
  Config config = tiny_config(folder / "out");
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.steps = 76;
  config.training.global_batch = 1;
  config.training.skip_deviations = 4;
  config.training.skip_most = 3;
  config.lr_scheduler.kind = ScheduleKind::constant;
  config.checkpoint.every = 1;
  return config;
}

}  // namespace

TEST(Outliers, ByDeviationsFreezeWeightsMomentsAndTheirCountOnEveryGridAndResumeToTheBit) {
  test::TemporaryPath folder;
  Config config = with_an_outlier(folder);
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}}) {
    config.output.dir = folder / to_string(grid);
    train_on_threads(on_grid(config, grid));
    EXPECT_THAT(test::slurp(config.output.dir + "/logs/rank-0.log"),
                AllOf(HasSubstr("step 70 skipped"), HasSubstr("1 of 76 steps were skipped")));
    const auto at = [&](int step, const char* kind) {
      return weights_of(config.output.dir + "/checkpoints/step-" + std::to_string(step), kind);
    };
    for (const char* kind : {"master", "exp_avg", "exp_avg_sq"}) {
      EXPECT_EQ(at(70, kind), at(69, kind));
      EXPECT_NE(at(71, kind), at(70, kind));
    }
  }
  const auto whole = column(metrics_of(config), "loss");
  const auto statistics = [](const Config& of) {
    return nlohmann::json::parse(test::slurp(of.output.dir + "/checkpoints/step-76/state.json"))
        .at("outliers");
  };
  for (const int step : {66, 70, 73}) {
    Config resumed = on_grid(config, {.x = 2});
    resumed.output.dir = folder / std::to_string(step);
    resumed.checkpoint.resume = config.output.dir + "/checkpoints/step-" + std::to_string(step);
    train_on_threads(resumed);
    EXPECT_EQ(column(metrics_of(resumed), "loss"), std::vector(whole.begin() + step, whole.end()));
    EXPECT_EQ(statistics(resumed), statistics(config)) << "resumed after " << step;
  }
}

TEST(Outliers, AreNoUpdatesSoThatTheNextOneHasTheNextBiasCorrection) {
  // The config's rule, which also notes the number of each update.
  struct Noting final : Optimizer {
    Noting(const OptimizerConfig& config, std::vector<std::int64_t>& to)
        : rule(make_optimizer(config)), updates(to) {}
    std::vector<std::string> state_names() const override { return rule->state_names(); }
    void update(const Context& ctx, const ParameterGroup& group,
                const Update& update) const override {
      if (updates.empty() || updates.back() != update.step) updates.push_back(update.step);
      rule->update(ctx, group, update);
    }
    std::unique_ptr<Optimizer> rule;
    std::vector<std::int64_t>& updates;
  };
  test::TemporaryPath folder;
  std::vector<std::int64_t> updates;
  train_on_threads(with_an_outlier(folder), {.make_optimizer = [&](const OptimizerConfig& config) {
                     return std::make_unique<Noting>(config, updates);
                   }});
  ASSERT_EQ(updates.size(), 75u);  // of 76 steps
  for (std::size_t i = 0; i < updates.size(); ++i) EXPECT_EQ(updates[i], i);
}

TEST(Outliers, AHundredInARowEndTheRunBecauseItLearnsNothing) {
  test::TemporaryPath folder;
  std::string text(8 * 30, 'a');  // step n reads window n - 1
  for (int i = 0; i < 8 * 150; ++i) text += static_cast<char>('b' + i * i * 7 % 23);
  test::spill(folder / "text.txt", text);
  Config config = tiny_config(folder / "out");
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.steps = 170;
  config.training.global_batch = 1;
  config.training.skip_outliers = 1.001;
  EXPECT_THAT(failure_of(config), AllOf(HasSubstr("the last 100 steps were skipped"),
                                        HasSubstr("raise training.skip_outliers")));
}

TEST(Outliers, APlantedOutlierIsSkippedOnEveryGridAndChangesNoWeight) {
  test::TemporaryPath folder;
  // Step n reads window n - 1, whose 8 targets are all 'a', except in step 30.
  std::string text(8 * 40, 'a');
  text.replace(8 * 29 + 1, 8, "qZ#7w!kM");
  test::spill(folder / "text.txt", text);
  Config config = tiny_config(folder / "out");
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.steps = 32;
  config.training.global_batch = 1;
  config.training.skip_outliers = 4;
  config.checkpoint.every = 1;
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}}) {
    config.output.dir = folder / to_string(grid);
    train_on_threads(on_grid(config, grid));
    const std::string log = test::slurp(config.output.dir + "/logs/rank-0.log");
    EXPECT_THAT(log, HasSubstr("step 30 skipped"));
    EXPECT_THAT(log, Not(HasSubstr("step 29 skipped")));
    EXPECT_THAT(log, HasSubstr("1 of 32 steps were skipped as outliers"));
    EXPECT_EQ(metrics_of(config).at(29).value("skipped", false), true);
    const auto at = [&](int step) {
      return weights_of(config.output.dir + "/checkpoints/step-" + std::to_string(step));
    };
    EXPECT_EQ(at(30), at(29));
    EXPECT_NE(at(29), at(28));
    EXPECT_NE(at(31), at(30));
  }
}
