#include "axonn/use/memorize/near.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
/// Probabilities of the next token after each token; row 0 is that of the first token, too.
using Bigrams = std::vector<std::vector<double>>;

const Bigrams kBigrams{
    {.10, .60, .20, .10}, {.05, .10, .70, .15}, {.25, .05, .10, .60}, {.55, .25, .15, .05}};

std::vector<TokenChance> next_of(const std::vector<double>& p, const SamplingPolicy& policy) {
  std::vector<std::int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return p[a] > p[b]; });
  std::vector<std::pair<std::int32_t, float>> likeliest;
  for (const std::int32_t token : order)
    likeliest.emplace_back(token, static_cast<float>(std::log(p[token])));
  return chances_of(likeliest, policy, std::ssize(p));
}

NextTokens model_of(const Bigrams& bigrams, const SamplingPolicy& policy) {
  return [bigrams, policy](std::span<const std::vector<std::int32_t>> prefixes) {
    std::vector<std::vector<TokenChance>> all;
    for (const auto& prefix : prefixes)
      all.push_back(next_of(bigrams[prefix.empty() ? 0 : prefix.back()], policy));
    return all;
  };
}

/// Distances by definition: the least of all ways to change the last tokens.
std::int64_t distance(std::span<const std::int32_t> a, std::span<const std::int32_t> b,
                      TextDistance kind) {
  if (kind == TextDistance::hamming) {
    std::int64_t differ = 0;
    for (std::size_t i = 0; i < a.size(); ++i) differ += a[i] != b[i];
    return differ;
  }
  if (a.empty() || b.empty()) return std::ssize(a) + std::ssize(b);
  const auto before = [](auto one) { return one.first(one.size() - 1); };
  return std::min({distance(before(a), before(b), kind) + (a.back() != b.back()),
                   distance(before(a), b, kind) + 1, distance(a, before(b), kind) + 1});
}

/// The sum over the whole ball: over all texts of this length.
double mass(std::span<const std::int32_t> text, const Bigrams& bigrams,
            const SamplingPolicy& policy, const NearOptions& options) {
  const auto vocab = static_cast<std::int64_t>(bigrams.size());
  std::int64_t texts = 1;
  for (std::size_t i = 0; i < text.size(); ++i) texts *= vocab;
  double sum = 0;
  for (std::int64_t n = 0; n < texts; ++n) {
    std::vector<std::int32_t> one;
    for (std::int64_t i = 0, rest = n; i < std::ssize(text); ++i, rest /= vocab)
      one.push_back(static_cast<std::int32_t>(rest % vocab));
    if (distance(text, one, options.distance) > options.epsilon) continue;
    double q = 1;
    for (std::size_t i = 0; i < one.size(); ++i) {
      const auto next = next_of(bigrams[i == 0 ? 0 : one[i - 1]], policy);
      const auto found = std::ranges::find(next, one[i], &TokenChance::first);
      q *= found == next.end() ? 0 : std::exp(found->second);
    }
    sum += q;
  }
  return sum;
}

const std::vector<std::int32_t> kText{1, 2, 3, 0};
const SamplingPolicy kTop3{.top_k = 3};

}  // namespace

TEST(NearBounds, AreThoseOfATextWithFourTokens) {
  const NextTokens next = model_of(kBigrams, kTop3);
  // The mass by definition, and as it was computed with another program.
  const auto p = [&](std::int64_t epsilon, TextDistance kind) {
    return mass(kText, kBigrams, kTop3, {.epsilon = epsilon, .distance = kind});
  };
  EXPECT_NEAR(p(0, TextDistance::hamming), .179618020, 1e-7);
  EXPECT_NEAR(p(1, TextDistance::hamming), .362216714, 1e-7);
  EXPECT_NEAR(p(1, TextDistance::levenshtein), .362216714, 1e-7);
  EXPECT_NEAR(p(2, TextDistance::hamming), .566938475, 1e-7);
  EXPECT_NEAR(p(2, TextDistance::levenshtein), .800187032, 1e-7);
  // Bounds of a search that also drops texts after the last token are wider.
  struct Wider {
    std::int64_t beams;
    double low, high;
  };
  for (const auto& [beams, low, high] : {Wider{1, .179618, 1},
                                         {2, .261263, .580999},
                                         {3, .310249, .397384},
                                         {4, .324613, .381721},
                                         {8, .362217, .362217}}) {
    const NearBounds bounds = near_bounds(kText, next, {.epsilon = 1, .beams = beams});
    EXPECT_NEAR(std::exp(bounds.exact), .179618020, 1e-7);
    EXPECT_GE(std::exp(bounds.low), low - 1e-6) << beams;
    EXPECT_LE(std::exp(bounds.high), high + 1e-6) << beams;
    EXPECT_LE(std::exp(bounds.low), .362216714 + 1e-7) << beams;
    EXPECT_GE(std::exp(bounds.high), .362216714 - 1e-7) << beams;
    if (beams == 8) {
      EXPECT_EQ(bounds.found, 8);
      EXPECT_EQ(bounds.low, bounds.high);
    }
  }
}

TEST(NearBounds, EncloseTheMassOfTheWholeBall) {
  const Random random(5, "bigrams");
  std::uint64_t drawn = 0;
  for (int trial = 0; trial < 10; ++trial) {
    Bigrams bigrams(3, std::vector<double>(3));
    for (auto& row : bigrams) {
      for (double& p : row) p = 0.02 + random.uniform(drawn++);
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      for (double& p : row) p /= sum;
    }
    std::vector<std::int32_t> text;
    for (int i = 0; i < 5; ++i) text.push_back(static_cast<std::int32_t>(random.below(drawn++, 3)));
    const SamplingPolicy policy{.temperature = trial % 2 ? 1.0 : 0.7,
                                .top_k = trial % 3 == 0 ? 2 : 0,
                                .top_p = trial % 5 == 0 ? 0.8 : 1};
    const NextTokens next = model_of(bigrams, policy);
    for (const TextDistance kind : {TextDistance::hamming, TextDistance::levenshtein})
      for (const std::int64_t epsilon : {0, 1, 2, 3}) {
        const double p = mass(text, bigrams, policy, {epsilon, 1, kind});
        double low = 0, high = 1;
        for (const std::int64_t beams : {1, 2, 5, 12, 243}) {
          const NearBounds bounds = near_bounds(text, next, {epsilon, beams, kind});
          EXPECT_LE(std::exp(bounds.low), p * (1 + 1e-6) + 1e-12);
          EXPECT_GE(std::exp(bounds.high), p * (1 - 1e-6));
          EXPECT_GE(bounds.low, bounds.exact - 1e-12);
          low = std::exp(bounds.low);
          high = std::exp(bounds.high);
        }
        EXPECT_NEAR(low, p, 1e-6 * p + 1e-12) << "with beams for all prefixes";
        EXPECT_NEAR(high, p, 1e-6 * p + 1e-12);
      }
  }
}

TEST(NearBounds, OfDistance0AreTheProbabilityOfTheText) {
  const NearBounds bounds = near_bounds(kText, model_of(kBigrams, kTop3), {.epsilon = 0});
  EXPECT_EQ(bounds.low, bounds.exact);
  EXPECT_EQ(bounds.found, 1);
  EXPECT_NEAR(std::exp(bounds.high), .179618020, 1e-7);
  // A token that the policy never draws.
  const NearBounds never =
      near_bounds(std::vector<std::int32_t>{3, 0}, model_of(kBigrams, kTop3), {.epsilon = 0});
  EXPECT_EQ(never.low, -INFINITY);
  EXPECT_EQ(never.high, -INFINITY);
}

TEST(NearSamples, AreThoseThatAreDrawnTokenByToken) {
  for (const SamplingPolicy& policy : {kTop3, SamplingPolicy{}, SamplingPolicy{.top_p = .8}})
    for (const TextDistance kind : {TextDistance::hamming, TextDistance::levenshtein}) {
      const std::int64_t count = 400, first = 7000;
      const Random random(9, "generate");
      std::vector<std::int64_t> want(3, 0);
      for (std::int64_t sample = 0; sample < count; ++sample) {
        std::vector<std::int32_t> text;
        while (text.size() < kText.size()) {
          const auto next = next_of(kBigrams[text.empty() ? 0 : text.back()], policy);
          const std::uint64_t stream = first + sample;
          double left = random.uniform(stream << 32 | text.size());
          std::size_t i = 0;
          while (i + 1 < next.size() && (left -= std::exp(next[i].second)) >= 0) ++i;
          text.push_back(next[i].first);
        }
        for (std::int64_t epsilon = 0; epsilon < 3; ++epsilon)
          want[epsilon] += distance(kText, text, kind) <= epsilon;
      }
      NearSamples samples(kText, {.epsilon = {0, 1, 2},
                                  .samples = count,
                                  .distance = kind,
                                  .seed = 9,
                                  .first_stream = first});
      const NextTokens next = model_of(kBigrams, policy);
      std::size_t asked = 0;
      while (!samples.done()) {
        asked += samples.prefixes().size();
        samples.step(next(samples.prefixes()));
      }
      EXPECT_EQ(samples.found(), want);
      EXPECT_GT(want[0], 0);
      EXPECT_LT(want[0], want[1]);
      EXPECT_LT(asked, 1U + 4 + 16 + 64) << "each prefix once";
    }
}

TEST(NearSamples, AreGivenUpWhereNoneCanBeNear) {
  NearSamples samples(std::vector<std::int32_t>{3, 0, 0, 0},
                      {.epsilon = {0}, .samples = 50, .distance = TextDistance::levenshtein});
  samples.step(model_of(kBigrams, kTop3)(samples.prefixes()));  // never draws 3
  EXPECT_TRUE(samples.done());
  EXPECT_EQ(samples.found(), std::vector<std::int64_t>{0});
  EXPECT_THROW(NearSamples(kText, {.epsilon = {0}, .first_stream = 0xffffffff}), Error);
}

TEST(Chances, AreThoseOfThePolicy) {
  const std::vector<double> p{.10, .60, .20, .10};
  const auto of = [&](const SamplingPolicy& policy) {
    std::vector<double> q(4, 0);
    for (const auto& [token, log_q] : next_of(p, policy)) q[token] = std::exp(log_q);
    return q;
  };
  using testing::DoubleNear;
  using testing::ElementsAre;
  const auto are = [](double a, double b, double c, double d) {
    return ElementsAre(DoubleNear(a, 1e-6), DoubleNear(b, 1e-6), DoubleNear(c, 1e-6),
                       DoubleNear(d, 1e-6));
  };
  EXPECT_THAT(of({}), are(.1, .6, .2, .1));
  EXPECT_THAT(of({.top_k = 3}), are(1 / 9.0, 6 / 9.0, 2 / 9.0, 0)) << "of equal ones the lower id";
  EXPECT_THAT(of({.top_p = .7}), are(0, .75, .25, 0));
  EXPECT_THAT(of({.temperature = .5, .top_k = 2}), are(0, .9, .1, 0));
  EXPECT_THAT(of({.temperature = 0}), are(0, 1, 0, 0));
  const std::vector<std::pair<std::int32_t, float>> few{{1, -1.F}, {2, -2.F}};
  EXPECT_THAT([&] { chances_of(few, {.top_k = 3}, 4); },
              testing::ThrowsMessage<UsageError>(HasSubstr("smaller top-k")));
}
