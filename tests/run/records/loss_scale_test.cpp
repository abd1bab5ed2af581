#include "axonn/run/records/loss_scale.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAreArray;

namespace {

TrainingConfig f16_training() {
  TrainingConfig training;
  training.dtype = DType::f16;
  return training;
}

/// Base-2 logarithms of the scales of steps that overflow as stated.
std::vector<int> scales(LossScale& scale, const std::vector<int>& overflows) {
  std::vector<int> logarithms;
  for (const int overflow : overflows) {
    logarithms.push_back(std::ilogb(scale.scale()));
    scale.update(overflow == 1);
  }
  return logarithms;
}

}  // namespace

TEST(LossScale, IsThatOfTorchsGradScalerStepByStep) {
  // Of torch 2.13: torch.amp.GradScaler("cpu", init_scale=2**24, growth_interval=3) on a perceptron
  // under autocast to float16; which steps of the 24 it skipped, and the scale of each.
  const std::vector<int> skipped{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0,
                                 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
  const std::vector<int> want{24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 15, 15,
                              16, 15, 15, 15, 16, 15, 15, 15, 16, 15, 15, 15};
  TrainingConfig training = f16_training();
  training.loss_scale.initial = 0x1p24;
  training.loss_scale.window = 3;
  LossScale scale(training);
  EXPECT_THAT(scales(scale, skipped), ElementsAreArray(want));
  EXPECT_EQ(scale.scale(), 65536);
  EXPECT_EQ(scale.state().steps, 0);
  EXPECT_EQ(scale.state().skipped_total, 12);
}

TEST(LossScale, ContinuesFromItsState) {
  TrainingConfig training = f16_training();
  training.loss_scale.window = 3;
  training.loss_scale.hysteresis = 2;
  const std::vector<int> first{0, 0, 1, 0, 1}, rest{0, 0, 0, 1, 1, 0, 0};
  LossScale straight(training), before(training), resumed(training);
  scales(straight, first);
  scales(before, first);
  resumed.set_state(before.state());
  EXPECT_EQ(scales(resumed, rest), scales(straight, rest));
  EXPECT_EQ(resumed.state(), straight.state());
}

TEST(LossScale, OverflowsBelowTheHysteresisLeaveIt) {
  TrainingConfig training = f16_training();
  training.loss_scale.window = 2;
  training.loss_scale.hysteresis = 2;
  LossScale scale(training);
  // The second overflow and each one after it halve, until the scale has doubled.
  EXPECT_THAT(scales(scale, {1, 1, 1, 0, 0, 1, 1, 0}),
              ElementsAreArray({16, 16, 15, 14, 14, 15, 15, 14}));
}

TEST(LossScale, EndsTheRunWhereAnOverflowWouldLowerItBelowTheMinimum) {
  TrainingConfig training = f16_training();
  training.loss_scale.initial = 4;
  training.loss_scale.min = 2;
  LossScale scale(training);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 2);
  EXPECT_FALSE(scale.exhausted());
  scale.update(true);
  EXPECT_EQ(scale.scale(), 2);
  EXPECT_TRUE(scale.exhausted());
}

TEST(LossScale, FixedItStaysAndEndsTheRunAfterSkipMostOverflowsInARow) {
  TrainingConfig training = f16_training();
  training.loss_scale.fixed = 1024;
  training.skip_most = 2;
  LossScale scale(training);
  for (const bool overflow : {true, false, true}) scale.update(overflow);
  EXPECT_FALSE(scale.exhausted());
  scale.update(true);
  EXPECT_TRUE(scale.exhausted());
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.state().skipped_total, 3);
}

TEST(LossScale, NeverGrowsToInfinity) {
  TrainingConfig training = f16_training();
  training.loss_scale.initial = 0x1p126;
  training.loss_scale.window = 1;
  LossScale scale(training);
  EXPECT_THAT(scales(scale, {0, 0, 0}), ElementsAreArray({126, 127, 127}));
}

TEST(LossScale, IsOneInOtherTypesAndCountsNothing) {
  LossScale scale{TrainingConfig()};
  scale.update(true);
  EXPECT_FALSE(scale.active());
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_EQ(scale.state().skipped_total, 0);
}
