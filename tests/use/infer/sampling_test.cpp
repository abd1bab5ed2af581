#include "axonn/use/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

std::vector<float> random_logits(std::size_t count, std::uint64_t seed) {
  const Random random(seed, "logits");
  std::vector<float> logits(count);
  for (std::size_t i = 0; i < count; ++i) logits[i] = static_cast<float>(3 * random.normal(i));
  return logits;
}

/// Probabilities by the definitions: temperature, then the k most likely tokens, then the fewest of
/// them that reach p, then those with min_p of the likeliest's.
std::vector<double> probabilities(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0) order.resize(std::min<std::size_t>(order.size(), sampling.top_k));
  const auto weight = [&](std::size_t token) {
    return std::exp((logits[token] - logits[order[0]]) / sampling.temperature);
  };
  double total = 0, before = 0;
  for (const std::size_t token : order) total += weight(token);
  std::vector<double> result(logits.size());
  for (const std::size_t token : order) {
    if (before >= sampling.top_p * total) break;
    before += result[token] = weight(token);
  }
  double kept = 0;
  for (std::size_t token = 0; token < result.size(); ++token) {
    if (result[token] < sampling.min_p) result[token] = 0;  // weights; the likeliest has 1
    kept += result[token];
  }
  for (double& p : result) p /= kept;
  return result;
}

}  // namespace

TEST(Sampling, DrawsEveryTokenAsOftenAsItsProbability) {
  const std::vector<float> logits = random_logits(300, 1);
  for (const Sampling& sampling : {Sampling{},
                                   {.temperature = 0.5},
                                   {.top_k = 5},
                                   {.top_k = 1000},
                                   {.top_p = 0.7},
                                   {.temperature = 2, .top_p = 0.99},
                                   {.temperature = 1.5, .top_k = 90, .top_p = 0.8},
                                   {.min_p = 0.1},
                                   {.temperature = 0.7, .top_k = 20, .min_p = 0.02},
                                   {.top_p = 0.95, .min_p = 0.05},
                                   {.min_p = 1}}) {
    constexpr int kDraws = 20'000;
    std::vector<double> drawn(logits.size());
    for (int i = 0; i < kDraws; ++i)
      drawn[sample(logits, sampling, (i + 0.5) / kDraws)] += 1.0 / kDraws;
    const std::vector<double> want = probabilities(logits, sampling);
    for (std::size_t token = 0; token < logits.size(); ++token)    // a run of evenly spaced draws
      EXPECT_NEAR(drawn[token], want[token], 1.0 / kDraws + 1e-5)  // is off by at most one draw
          << sampling.temperature << ',' << sampling.top_k << ',' << sampling.top_p << ": "
          << token;
  }
}

TEST(Sampling, FiltersAFlatDistributionCorrectly) {
  const std::vector<float> flat(5000, 1.5f);
  EXPECT_EQ(sample(flat, {.top_p = 0.9999}, 0), 0);
  EXPECT_GT(sample(flat, {.top_p = 0.9999}, 0.9999), 4990);
  EXPECT_EQ(sample(flat, {.top_p = 0.001}, 0.9999), 4);
  EXPECT_EQ(sample(flat, {.top_k = 3}, 0.9999), 2);
}

TEST(Sampling, AtTemperatureZeroTakesTheFirstOfEquallyLikelyTokens) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {.temperature = 0, .top_k = 2}, 0.9), 1);
}

TEST(Sampling, AtAnyTemperatureDrawsByTheDefinition) {
  // Weights e^(logit / temperature), relative to the largest, with the difference in double.
  const std::vector<float> logits{-1, 3, 2.5, 3, -40};
  const double least = std::numeric_limits<double>::denorm_min(),
               most = std::numeric_limits<double>::max();
  for (const double temperature : {least, 1e-310, 1e-45, 1e-40, 1e-39, 1e-38, 1e-37, 1e-3, 1.0, 1e3,
                                   1e38, 1e40, most, std::numeric_limits<double>::infinity()}) {
    std::vector<double> weights;
    for (const float logit : logits) weights.push_back(std::exp((logit - 3.0) / temperature));
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    constexpr int kDraws = 1000;
    std::vector<double> drawn(logits.size());
    for (int i = 0; i < kDraws; ++i)
      drawn[sample(logits, {.temperature = temperature}, (i + 0.5) / kDraws)] += 1.0 / kDraws;
    for (std::size_t token = 0; token < logits.size(); ++token)
      EXPECT_NEAR(drawn[token], weights[token] / all, 1.0 / kDraws + 1e-6)
          << temperature << ": " << token;
    EXPECT_EQ(sample(logits, {.temperature = temperature, .top_k = 1}, 0.999), 1) << temperature;
  }
}

TEST(Sampling, TakesInfiniteLogitsAsTheLikeliestOrAsWithoutWeight) {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const double temperature : {1e-300, 1e-40, 1.0, 1e300, double{infinite}})
    for (const double top_p : {0.5, 1.0}) {
      const Sampling sampling{.temperature = temperature, .top_p = top_p};
      EXPECT_EQ(sample(std::vector<float>{1, infinite, 2}, sampling, 0.999), 1);
      EXPECT_EQ(sample(std::vector<float>{-infinite, 5, -infinite}, sampling, 0.0), 1);
      EXPECT_EQ(sample(std::vector<float>{-infinite, 5, -infinite}, sampling, 0.999), 1);
    }
  EXPECT_EQ(sample(std::vector<float>{infinite, 0, infinite}, {}, 0.75), 2) << "equally likely";
}

TEST(Sampling, WithATopPOfZeroTakesTheLikeliestToken) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {.temperature = 9, .top_p = 0}, 0.999), 1);
}

TEST(Sampling, NeverDrawsATokenWithoutWeight) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits{none, 0, none};
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)})
    EXPECT_EQ(sample(logits, {}, uniform), 1) << uniform;
}

TEST(Sampling, PenalisesEachSeenTokenOnce) {
  std::vector<float> logits{2, -2, 3, 0, -1};
  penalise(logits, std::vector<std::int32_t>{0, 1, 0, 3, 9, -1, 1}, 2);
  EXPECT_THAT(logits, ElementsAre(1, -4, 3, 0, -1));
}

TEST(Sampling, PenalisesGeneratedTokensByPresenceAndCount) {
  std::vector<float> logits{2, -2, 3, 0};
  const std::vector<std::int32_t> generated{1, 0, 1, 9, 1};
  penalise_generated(logits, generated, {.presence_penalty = 0.5, .frequency_penalty = 0.25});
  EXPECT_THAT(logits, ElementsAre(1.25f, -3.25f, 3, 0));
  penalise_generated(logits, generated, {.presence_penalty = -0.5});
  EXPECT_THAT(logits, ElementsAre(1.75f, -2.75f, 3, 0));
}

TEST(Sampling, RefusesNanAndSettingsOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      [&] {
        sample(std::vector<float>{1, nan}, {}, 0.5);
      },
      ThrowsMessage<Error>(HasSubstr("a logit is NaN")));
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& sampling : {Sampling{.top_p = -0.1},
                                   {.top_p = 1.1},
                                   {.top_p = no_number},
                                   {.temperature = -1e-9},
                                   {.temperature = no_number},
                                   {.top_k = -1},
                                   {.min_p = -0.1},
                                   {.min_p = 1.1}})
    EXPECT_THROW(sample(std::vector<float>{1}, sampling, 0.5), Error);
  EXPECT_THROW(sample(std::vector<float>{1}, {}, 1), Error);
  EXPECT_THROW(penalise({}, {}, 0), Error);
}
