#include <string>

#include <gmock/gmock.h>

#include "axonn/train/run_state.h"

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
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(means.accept(2, 1, 1));
  return means;
}

}  // namespace

TEST(Outliers, ALossOrNormAboveTheFactorTimesTheMeanIsAnOutlier) {
  OutlierMeans means = after_twenty_steps_of_one();
  EXPECT_FALSE(means.accept(2, 2.01, 1));
  EXPECT_FALSE(means.accept(2, 1, 2.01));
  EXPECT_TRUE(means.accept(2, 1.99, 1.99));
}

TEST(Outliers, OneCountsInTheMeanAsTheFactorTimesTheMeanHoweverLargeItIs) {
  OutlierMeans means = after_twenty_steps_of_one();
  EXPECT_FALSE(means.accept(2, 1e9, 1));
  EXPECT_DOUBLE_EQ(means.loss, 1 + 1.0 / 21);
  EXPECT_EQ(means.skipped, 1);
  EXPECT_TRUE(means.accept(2, 1, 1));
  EXPECT_EQ(means.skipped, 0);
}

TEST(Outliers, ALossThatStaysHighIsAcceptedAfterSomeSteps) {
  OutlierMeans means = after_twenty_steps_of_one();
  while (means.skipped < 100 && !means.accept(2, 4, 1)) {
  }
  EXPECT_GT(means.steps, 30);
  EXPECT_EQ(means.skipped, 0);
}

TEST(Outliers, TheFirstStepsAreNeverOutliers) {
  OutlierMeans means;
  EXPECT_TRUE(means.accept(2, 1, 1));
  EXPECT_TRUE(means.accept(2, 50, 50));
}

TEST(Outliers, FactorZeroAcceptsEverything) {
  EXPECT_TRUE(after_twenty_steps_of_one().accept(0, 1e9, 1e9));
}

TEST(Outliers, ContinueWithTheMeansOfAnEarlierRun) {
  OutlierMeans means{.loss = 1, .norm = 1, .steps = 20};
  EXPECT_FALSE(means.accept(2, 3, 1));
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
