#include <vector>

#include <gmock/gmock.h>

#include "axonn/train/optimizer.h"

using namespace axonn;
using testing::DoubleNear;
using testing::Pointwise;

namespace {

constexpr double kScheduleRounding = 1e-15;  // a few additions and products of numbers of at most 1

/// Eleven steps: two of warm-up to 1, then a decay to 0.1 over steps 2 to 10.
std::vector<double> rates(ScheduleKind kind, const std::vector<std::int64_t>& steps) {
  Config config;
  config.training.steps = 11;
  config.optimizer.lr = 1;
  config.lr_scheduler = {.kind = kind, .warmup_steps = 2, .min_lr = 0.1, .decay_steps = 4};
  std::vector<double> found;
  for (const std::int64_t step : steps) found.push_back(learning_rate(config, step));
  return found;
}

}  // namespace

TEST(Schedule, RisesLinearlyToTheFullRateAtTheLastStepOfTheWarmUp) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd})
    EXPECT_EQ(rates(kind, {0, 1, 2}), (std::vector{0.5, 1.0, 1.0}));
}

TEST(Schedule, ConstantStays) {
  EXPECT_EQ(rates(ScheduleKind::constant, {3, 6, 10}), (std::vector{1.0, 1.0, 1.0}));
}

TEST(Schedule, LinearIsHalfWayInTheMiddleAndLowestAtTheLastStep) {
  // 1 - 0.9 · 1/4, 1 - 0.9 · 1/2, 0.1.
  EXPECT_THAT(rates(ScheduleKind::linear, {4, 6, 10}),
              Pointwise(DoubleNear(kScheduleRounding), std::vector{0.775, 0.55, 0.1}));
}

TEST(Schedule, CosineIsFlatAtBothEndsAndHalfWayInTheMiddle) {
  // 0.1 + 0.45 · (1 + cos(pi/4)), 0.1 + 0.45, 0.1 + 0.45 · (1 - cos(pi/4)), 0.1.
  EXPECT_THAT(rates(ScheduleKind::cosine, {4, 6, 8, 10}),
              Pointwise(DoubleNear(kScheduleRounding),
                        std::vector{0.86819805153394640, 0.55, 0.23180194846605365, 0.1}));
}

TEST(Schedule, WsdStaysAndFallsLinearlyOverTheLastSteps) {
  EXPECT_THAT(rates(ScheduleKind::wsd, {3, 6, 7, 8, 10}),
              Pointwise(DoubleNear(kScheduleRounding), std::vector{1.0, 1.0, 0.775, 0.55, 0.1}));
}

TEST(Schedule, IsDefinedWhereTheWarmUpIsTheWholeRun) {
  Config config;
  config.training.steps = 4;
  config.optimizer.lr = 2;
  config.lr_scheduler.warmup_steps = 4;
  EXPECT_EQ(learning_rate(config, 3), 2);
  EXPECT_EQ(learning_rate(config, 4), 2);
}
