#include "axonn/train/outliers.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Not;

namespace {

OutlierFilter after_twenty_steps_of_one(double factor) {
  OutlierFilter filter(factor);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(filter.accept(1, 1));
  return filter;
}

}  // namespace

TEST(Outliers, ALossOrNormAboveTheFactorTimesTheMeanIsAnOutlier) {
  OutlierFilter filter = after_twenty_steps_of_one(2);
  EXPECT_FALSE(filter.accept(2.01, 1));
  EXPECT_FALSE(filter.accept(1, 2.01));
  EXPECT_TRUE(filter.accept(1.99, 1.99));
}

TEST(Outliers, ASkippedStepDoesNotRaiseTheMean) {
  OutlierFilter filter = after_twenty_steps_of_one(2);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(filter.accept(100, 1));
  EXPECT_EQ(filter.state().loss, 1);
  EXPECT_EQ(filter.state().steps, 20);
}

TEST(Outliers, TheFirstStepsAreNeverOutliers) {
  OutlierFilter filter(2);
  EXPECT_TRUE(filter.accept(1, 1));
  EXPECT_TRUE(filter.accept(50, 50));
}

TEST(Outliers, FactorZeroAcceptsEverything) {
  EXPECT_TRUE(after_twenty_steps_of_one(0).accept(1e9, 1e9));
}

TEST(Outliers, ContinueWithTheMeansOfAnEarlierRun) {
  OutlierFilter filter(2, after_twenty_steps_of_one(2).state());
  EXPECT_FALSE(filter.accept(3, 1));
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
