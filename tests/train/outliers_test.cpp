#include <string>

#include <gmock/gmock.h>

#include "axonn/train/run_state.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
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

TEST(Outliers, ASkippedStepDoesNotRaiseTheMean) {
  OutlierMeans means = after_twenty_steps_of_one();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(means.accept(2, 100, 1));
  EXPECT_EQ(means.loss, 1);
  EXPECT_EQ(means.steps, 20);
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
    const auto at = [&](int step) {
      return weights_of(config.output.dir + "/checkpoints/step-" + std::to_string(step));
    };
    EXPECT_EQ(at(30), at(29));
    EXPECT_NE(at(29), at(28));
    EXPECT_NE(at(31), at(30));
  }
}
