#include "axonn/run/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/run/config/resolve.h"
#include "axonn/run/optim/optimizer.h"

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

TEST(Schedule, WsdFallsAlongTheCurveOfItsDecay) {
  Config config;
  config.training.steps = 1001;
  config.optimizer.lr = 1;
  config.lr_scheduler = {
      .kind = ScheduleKind::wsd, .warmup_steps = 10, .min_lr = 0.1, .decay_steps = 400};
  for (std::int64_t step = 600; step <= 1000; ++step) {
    const long double r = (step - 600) / 400.0L;
    const std::pair<DecayShape, long double> left[] = {
        {DecayShape::linear, 1 - r},
        {DecayShape::cosine, (1 + std::cos(std::numbers::pi_v<long double> * r)) / 2},
        {DecayShape::one_minus_sqrt, 1 - std::sqrt(r)}};
    for (const auto& [shape, share] : left) {
      config.lr_scheduler.decay = shape;
      EXPECT_NEAR(learning_rate(config, step), static_cast<double>(0.1L + 0.9L * share),
                  kScheduleRounding);
    }
  }
}

TEST(Schedule, CountsSamplesAsTheRecipeOfApertusDoes) {
  // Source: the pretraining of Apertus 8B; rates by samples consumed before the step.
  Config config;
  config.training.steps = 2'627'139;
  config.training.global_batch = 2048;
  config.training.batch_stages = {"1024 1718272000"};
  config.optimizer.lr = 1.1e-4;
  config.lr_scheduler = {.kind = ScheduleKind::wsd,
                         .min_lr = 1.1e-5,
                         .decay = DecayShape::one_minus_sqrt,
                         .warmup_samples = 4'096'000,
                         .decay_samples = 403'905'806,
                         .total_samples = 3'662'109'375};
  const long double S = 3'662'109'375, w = 4'096'000, c = 403'905'806, most = 1.1e-4L,
                    least = 1.1e-5L;
  const auto samples_before = [](std::int64_t step) {
    return step * 1024 + std::max<std::int64_t>(step - 1'678'000, 0) * 1024;
  };
  for (std::int64_t step = 0; step < config.training.steps; step += 97) {
    const std::int64_t samples = samples_before(step);
    const auto s = static_cast<long double>(samples);
    const long double want = s <= w       ? most * s / w
                             : s <= S - c ? most
                                          : least + (most - least) * (1 - sqrtl((s - (S - c)) / c));
    const double got = learning_rate(config, step, samples);
    // sqrt near 0 has a large slope, but its argument is exact to half an ulp.
    ASSERT_NEAR(got, static_cast<double>(want), 4e-16 * static_cast<double>(most)) << step;
  }
  for (const std::int64_t step : {100LL, 1'678'000LL, 1'678'001LL, 2'600'000LL})
    EXPECT_EQ(learning_rate(config, step), learning_rate(config, step, samples_before(step)));
}

TEST(Schedule, WarmsUpForAShareOfTheStepsRoundedUp) {
  Config config;
  config.lr_scheduler.warmup_ratio = 0.07;
  for (const auto& [steps, warmup] : {std::pair{100, 7}, {101, 8}, {1, 1}, {0, 0}}) {
    config.training.steps = steps;
    EXPECT_EQ(warmup_steps(config), warmup) << steps;
  }
}

TEST(Schedule, ThatCountsSamplesEndsByDefaultWithTheRun) {
  Config config;
  config.model = {.layers = 1, .hidden = 8, .heads = 1};
  config.training.steps = 20;
  config.training.global_batch = 12;
  config.training.batch_ramp = "4 4 16";
  config.optimizer.lr = 1;
  config.lr_scheduler = {.kind = ScheduleKind::wsd, .warmup_samples = 8};
  const ScheduleConfig schedule = resolved(config).lr_scheduler;
  EXPECT_EQ(schedule.total_samples, 4 + 4 + 8 + 17 * 12);
  EXPECT_EQ(schedule.decay_samples, schedule.total_samples / 10);
}

TEST(Schedule, EndsWithTheLowestRateUnlessTheLastStepIsInTheWarmUpOrTheOnlyOne) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd})
    for (std::int64_t steps = 1; steps <= 7; ++steps)
      for (std::int64_t warmup = 0; warmup <= steps; ++warmup)
        for (std::int64_t decay = 0; decay <= steps - warmup; ++decay) {
          Config config;
          config.model = {.layers = 1, .hidden = 8, .heads = 1};
          config.training.steps = steps;
          config.optimizer.lr = 1;
          config.lr_scheduler = {
              .kind = kind, .warmup_steps = warmup, .min_lr = 0.25, .decay_steps = decay};
          config = resolved(config);
          const bool lowest = steps > warmup && steps > 1;
          EXPECT_EQ(learning_rate(config, steps - 1), lowest ? 0.25 : 1)
              << static_cast<int>(kind) << ": " << steps << ' ' << warmup << ' ' << decay;
          double highest = 0;
          for (std::int64_t step = 0; step < steps; ++step) {
            const double rate = learning_rate(config, step);
            EXPECT_TRUE(rate > 0 && rate <= 1) << step;
            highest = std::max(highest, rate);
          }
          EXPECT_EQ(highest, 1);
        }
}

TEST(Schedule, ThatCountsSamplesHasTheLowestRateFromTheirTotalOn) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd})
    for (const std::int64_t total : {1, 9, 40})
      for (const std::int64_t warmup : {std::int64_t{0}, total / 2, total})
        for (const std::int64_t decay : {std::int64_t{0}, total - warmup}) {
          Config config;
          config.model = {.layers = 1, .hidden = 8, .heads = 1};
          config.training.steps = 30;
          config.training.global_batch = 4;
          config.optimizer.lr = 1;
          config.lr_scheduler = {.kind = kind,
                                 .min_lr = 0.25,
                                 .warmup_samples = warmup,
                                 .decay_samples = decay,
                                 .total_samples = total};
          config = resolved(config);
          for (const std::int64_t samples : {total, total + 1, 4 * total})
            EXPECT_EQ(learning_rate(config, 7, samples), 0.25)
                << static_cast<int>(kind) << ": " << total << ' ' << warmup << ' ' << decay;
          EXPECT_EQ(learning_rate(config, 0, 0), warmup > 0 ? 0 : 1);
          if (warmup < total) {
            EXPECT_EQ(learning_rate(config, 7, warmup), 1);
          }
        }
}
