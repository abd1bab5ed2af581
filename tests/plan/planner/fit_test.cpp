#include "axonn/plan/planner/machine/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;

namespace {

constexpr double kNoise = 0.05;  // relative, in each time

/// Random factors around 1, the same in every run of the test.
class Noise {
 public:
  explicit Noise(double deviation) : normal_(1, deviation) {}
  double operator()() { return normal_(engine_); }

 private:
  std::mt19937 engine_{7};
  std::normal_distribution<double> normal_;
};

double seconds_of(const ProductRate& rate, double m, double n, double k) {
  return 2 * m * n * k / rate.flops_per_s * (1 + rate.half_m / m) * (1 + rate.half_n / n) *
         (1 + rate.half_k / k);
}

std::vector<TimedProduct> products_of(const ProductRate& rate, double deviation) {
  std::vector<TimedProduct> products;
  Noise noise(deviation);
  for (const int m : {16, 64, 256, 1024})
    for (const int n : {16, 64, 256, 1024})
      for (const int k : {16, 64, 256, 1024})
        products.push_back({m, n, k, seconds_of(rate, m, n, k) * noise()});
  return products;
}

double seconds_of(const GroupRate& rate, const TimedCollective& timed) {
  const double bytes = static_cast<double>(timed.bytes), g = timed.size;
  const double ring = (g - 1) * rate.latency_s + (g - 1) / g * bytes / rate.bytes_per_s;
  if (timed.operation != "all_reduce") return ring;
  const double depth = std::ceil(std::log2(g));
  return std::min(2 * ring, 2 * depth * rate.latency_s + 2 * bytes / rate.bytes_per_s);
}

std::vector<TimedCollective> collectives_of(const GroupRate& rate, double deviation) {
  std::vector<TimedCollective> times;
  Noise noise(deviation);
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce"})
    for (const int bytes : {4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
      TimedCollective timed{.operation = operation, .size = rate.size, .bytes = bytes};
      timed.seconds = seconds_of(rate, timed) * noise();
      times.push_back(timed);
    }
  return times;
}

/// Matches numbers within a relative tolerance of value.
testing::Matcher<double> about(double value, double share) {
  return testing::DoubleNear(value, share * value);
}

}  // namespace

TEST(Fit, RecoversRateAndHalfSizesFromExactTimesOfProducts) {
  const ProductRate rate{.flops_per_s = 1e11, .half_m = 30, .half_n = 8, .half_k = 120};
  const ProductRate fitted = fit_product_rate(products_of(rate, 0));
  EXPECT_THAT(fitted.flops_per_s, about(rate.flops_per_s, 1e-6));
  EXPECT_THAT(fitted.half_m, about(rate.half_m, 1e-6));
  EXPECT_THAT(fitted.half_n, about(rate.half_n, 1e-6));
  EXPECT_THAT(fitted.half_k, about(rate.half_k, 1e-6));
}

TEST(Fit, RecoversRateAndHalfSizesFromNoisyTimesWithinTheNoise) {
  // 64 times with 5 % noise. A quarter of them determine a half size, so their mean has 1.25 %
  // noise, and a half size that makes up most of a small product's time a few times that.
  const ProductRate rate{.flops_per_s = 1e11, .half_m = 30, .half_n = 8, .half_k = 120};
  const ProductRate fitted = fit_product_rate(products_of(rate, kNoise));
  EXPECT_THAT(fitted.flops_per_s, about(rate.flops_per_s, kNoise));
  EXPECT_THAT(fitted.half_m, about(rate.half_m, 3 * kNoise));
  EXPECT_THAT(fitted.half_n, about(rate.half_n, 6 * kNoise));
  EXPECT_THAT(fitted.half_k, about(rate.half_k, 3 * kNoise));
}

TEST(Fit, IsFiniteEvenIfSmallerProductsTakeLonger) {
  std::vector<TimedProduct> products;
  for (const std::int64_t size : {16, 64, 256, 1024})
    products.push_back({size, size, size, 1.0 / static_cast<double>(size)});
  const ProductRate fitted = fit_product_rate(products);
  for (const double each : {fitted.flops_per_s, fitted.half_m, fitted.half_n, fitted.half_k}) {
    EXPECT_TRUE(std::isfinite(each));
    EXPECT_GE(each, 0);
  }
  EXPECT_GT(fitted.flops_per_s, 0);
}

TEST(Fit, HasNoHalfSizesIfSmallProductsAreAsFast) {
  const ProductRate fitted = fit_product_rate(products_of({.flops_per_s = 1e12}, 0));
  EXPECT_THAT(fitted.flops_per_s, about(1e12, 1e-9));
  EXPECT_LT(fitted.half_m + fitted.half_n + fitted.half_k, 1e-3);
}

TEST(Fit, RecoversARowwiseRateWithAKnownLaunch) {
  std::vector<TimedRows> times;
  Noise noise(kNoise);
  for (double bytes = 1 << 10; bytes < 1 << 28; bytes *= 4)
    times.push_back({bytes, (5e-6 + bytes / 2e10) * noise()});
  EXPECT_THAT(fit_rows_rate(times, 5e-6), about(2e10, 2 * kNoise));
}

TEST(Fit, OfRowsIsPositiveEvenIfTheLaunchExceedsTheMeasuredTime) {
  EXPECT_GT(fit_rows_rate(std::vector<TimedRows>{{1e3, 1e-6}}, 2e-6), 0);
}

TEST(Fit, RecoversAGroupsLatencyAndRateWithRingsAndTrees) {
  for (const int size : {2, 3, 8, 64}) {
    SCOPED_TRACE(size);
    const GroupRate rate{.size = size, .latency_s = 2e-5, .bytes_per_s = 1e9};
    const GroupRate fitted = fit_group_rate(collectives_of(rate, 0));
    EXPECT_EQ(fitted.size, size);
    EXPECT_THAT(fitted.latency_s, about(rate.latency_s, 1e-6));
    EXPECT_THAT(fitted.bytes_per_s, about(rate.bytes_per_s, 1e-6));
    const GroupRate noisy = fit_group_rate(collectives_of(rate, kNoise));
    EXPECT_THAT(noisy.latency_s, about(rate.latency_s, 2 * kNoise));
    EXPECT_THAT(noisy.bytes_per_s, about(rate.bytes_per_s, 2 * kNoise));
  }
}

TEST(Fit, UsesTheLargestMessagesRateIfNoiseMadeLargeMessagesFaster) {
  const std::vector<TimedCollective> times = {{"all_gather", 2, 1000, 3e-3},
                                              {"all_gather", 2, 100'000, 2e-3}};
  EXPECT_THAT(fit_group_rate(times).bytes_per_s, about(50'000 / 2e-3, 1e-9));
}

TEST(Fit, ThrowsWithoutTimesOrWithZeroTimes) {
  EXPECT_THROW(fit_product_rate({}), Error);
  EXPECT_THROW(fit_product_rate(std::vector<TimedProduct>{{1, 1, 1, 0}}), Error);
  EXPECT_THROW(fit_rows_rate({}, 0), Error);
  EXPECT_THROW(fit_rows_rate(std::vector<TimedRows>{{1, 0}}, 0), Error);
  EXPECT_THROW(fit_group_rate({}), Error);
  EXPECT_THROW(fit_group_rate(std::vector<TimedCollective>{{"all_reduce", 2, 8, 0}}), Error);
}
