#include "axonn/use/memorize/membership.h"

#include <cmath>

#include <gtest/gtest.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;

namespace {

std::vector<TargetRecord> with_losses(const std::vector<double>& losses) {
  std::vector<TargetRecord> records;
  for (const double loss : losses) records.push_back({.log_p = -loss});
  return records;
}

std::vector<double> spread(std::string_view name, std::size_t count, double about) {
  const Random random(3, name);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = about + random.normal(i);
  return values;
}

}  // namespace

TEST(MembershipScores, AreThoseWorkedOutByHand) {
  const auto records = with_losses({.10, 2.30, .05, 1.20, .40, 3.00, .02, .90});
  const MembershipScores scores =
      membership_scores(records, "the cat sat on the mat the cat sat on the mat");
  EXPECT_NEAR(scores.loss, -0.99625, 1e-12);
  EXPECT_NEAR(scores.zlib, -0.99625 / 30, 1e-12);
  EXPECT_NEAR(scores.min_k, -3, 1e-12);  // 20 % of eight: one token
  EXPECT_TRUE(std::isnan(scores.blind));
}

TEST(MembershipScores, TakeTheLeastFifthRoundedDown) {
  std::vector<double> losses(14, 1);
  losses[3] = 4;
  losses[9] = 3;
  losses[11] = 2;
  EXPECT_DOUBLE_EQ(membership_scores(with_losses(losses), "x").min_k, -3.5);  // two of 14
}

TEST(MembershipScores, RelateLogProbabilitiesToTheirMeansAndDeviations) {
  // The three rows of logits of token_record_test.cpp.
  const double lse[] = {2.506283, 3.593310, 2.473463}, mean[] = {1.442353, 2.559904, 1.075117},
               deviation[] = {0.812444, 0.773727, 0.607563}, logit[] = {.5 * 2, 2.5, 1.5};
  std::vector<TargetRecord> records;
  for (int i = 0; i < 3; ++i)
    records.push_back({.log_p = logit[i] - lse[i],
                       .mean = mean[i] - lse[i],
                       .variance = deviation[i] * deviation[i]});
  EXPECT_NEAR(membership_scores(records, "x").min_k_pp, -0.544472, 2e-6);
  records[1].variance = 0;  // counts as 1e-6
  EXPECT_NEAR(membership_scores(records, "x").min_k_pp, (2.5 - 2.559904) / 1e-3, 1e-3);
}

TEST(Separation, HasTheAreaAndErrorWorkedOutByHand) {
  const Separation result =
      separate(std::vector{.9, .8, .8, .4}, std::vector{.7, .8, .3, .2, .1}, 1);
  EXPECT_NEAR(result.auc, .85, 1e-12);
  EXPECT_NEAR(result.auc_error, .132288, 1e-6);
  EXPECT_NEAR(result.low, .85 - 1.959964 * .132288, 1e-5);
  EXPECT_EQ(result.high, 1);
  for (const auto& one : result.true_positives) EXPECT_FALSE(one) << "too few non-members";
}

TEST(Separation, MeasuresTruePositivesWhereThereAreEnoughNonMembers) {
  std::vector<double> others(100);
  for (std::size_t i = 0; i < others.size(); ++i) others[i] = static_cast<double>(i);
  // At most one of 100 at or above the threshold: scores must be larger than 98.
  const Separation result = separate(std::vector{99.0, 98.5, 98.0, 3.0}, others, 1);
  EXPECT_FALSE(result.true_positives[0]);
  ASSERT_TRUE(result.true_positives[1]);
  const TruePositives& one = *result.true_positives[1];
  EXPECT_EQ(one.found, 2);
  EXPECT_DOUBLE_EQ(one.share, 0.5);
  EXPECT_NEAR(one.low, clopper_pearson(2, 4).low, 1e-12);
  EXPECT_LE(one.from, 0.5);
  EXPECT_GE(one.to, 0.5);
  others[98] = 99;  // two at 99: with a threshold there it would be two of 100
  EXPECT_EQ(separate(std::vector{99.0, 99.5, 98.0, 3.0}, others, 1).true_positives[1]->found, 1);
}

TEST(Separation, OfEqualDistributionsIsWithinItsIntervalOfAHalf) {
  const auto members = spread("members", 1500, 0), others = spread("others", 1200, 0);
  const Separation result = separate(members, others, 1);
  EXPECT_LT(result.low, 0.5);
  EXPECT_GT(result.high, 0.5);
  ASSERT_TRUE(result.true_positives[0] && result.true_positives[1]);
  EXPECT_NEAR(result.true_positives[1]->share, 0.01, 0.012);
  EXPECT_LE(result.true_positives[1]->from, result.true_positives[1]->share);
  EXPECT_GE(result.true_positives[1]->to, result.true_positives[1]->share);
  EXPECT_GT(separate(spread("members", 1500, 2), others, 1).auc, 0.9);
}

TEST(ConformalPValue, IsTheShareOfControlsThatScoreAsHigh) {
  const std::vector<double> controls{-71, -60, -52, -49, -44, -40, -38, -35, -33};
  EXPECT_DOUBLE_EQ(conformal_p_value(-30, controls), .1);
  EXPECT_DOUBLE_EQ(conformal_p_value(-39, controls), .4);
  EXPECT_DOUBLE_EQ(conformal_p_value(-38, controls), .4) << "an equal control counts";
  EXPECT_DOUBLE_EQ(conformal_p_value(-INFINITY, controls), 1);
}

TEST(ClopperPearson, HasTheIntervalsOfTables) {
  const auto expect = [](std::int64_t found, std::int64_t count, double low, double high) {
    const Interval got = clopper_pearson(found, count);
    EXPECT_NEAR(got.low, low, 1e-6) << found << " of " << count;
    EXPECT_NEAR(got.high, high, 1e-6) << found << " of " << count;
  };
  expect(0, 100, 0, .036217);
  expect(5, 100, .016432, .112835);
  expect(88, 100, .799764, .936431);
  expect(3, 1000, .000619, .008742);
  expect(4, 4, std::pow(0.025, 0.25), 1);
}

TEST(BlindScores, SeparateDocumentsOfOtherWordsAndNotThoseOfTheSame) {
  const auto drawn = [](std::string_view name, std::int32_t from, std::size_t count) {
    const Random random(5, name);
    std::vector<std::vector<std::int32_t>> all(count, std::vector<std::int32_t>(60));
    std::uint64_t i = 0;
    for (auto& document : all)
      for (std::int32_t& token : document)
        token = from + static_cast<std::int32_t>(random.below(i++, 50));
    return all;
  };
  const auto auc = [](const auto& members, const auto& others) {
    const std::size_t size = members.size();
    const std::vector<double> scores =
        blind_scores(std::ssize(members), std::ssize(others), [&](std::int64_t n) {
          return n < std::ssize(members) ? members[n] : others[n - std::ssize(members)];
        });
    EXPECT_EQ(scores.size(), size + others.size());
    return separate(std::span(scores).first(size), std::span(scores).subspan(size), 1).auc;
  };
  EXPECT_GT(auc(drawn("a", 0, 100), drawn("b", 10, 80)), 0.99);
  EXPECT_NEAR(auc(drawn("a", 0, 100), drawn("b", 0, 80)), 0.5, 0.13);
}

TEST(BlindScores, AreLogRatiosOfSmoothedCounts) {
  // Two of each kind: each is scored by the other of its kind and both of the other kind, but that
  // the fold of a document leaves out the first of the others, too.
  const std::vector<std::vector<std::int32_t>> all{{1, 1, 2}, {1, 3}, {2, 2}, {3}};
  const std::vector<double> scores = blind_scores(2, 2, [&](std::int64_t n) { return all[n]; });
  // Fold 0 leaves b = {1, 3} and d = {3}; V = 3.
  const auto from_b = [](double count) { return std::log((count + 1) / (2 + 3)); };
  const auto from_d = [](double count) { return std::log((count + 1) / (1 + 3)); };
  EXPECT_NEAR(scores[0], 2 * (from_b(1) - from_d(0)) + from_b(0) - from_d(0), 1e-12);
  EXPECT_NEAR(scores[2], 2 * (from_b(0) - from_d(0)), 1e-12);
}

TEST(SampleDistance, IsThatOfKolmogorovAndSmirnovWorkedOutByHand) {
  const auto found = sample_distance({.61, .72, .55, .80, .67}, {.90, .77, .85, .95, .70, .88});
  EXPECT_NEAR(found.distance, 2. / 3, 1e-12);
  EXPECT_NEAR(found.p, .108225, 1e-6);
  EXPECT_EQ(sample_distance({1, 2, 3}, {1, 2, 3}).distance, 0) << "ties";
  EXPECT_EQ(sample_distance({1, 2, 3}, {1, 2, 3}).p, 1);
  // Of 20 and 20 that do not overlap: two of 40! / (20! 20!) orders.
  std::vector<double> low, high;
  for (int i = 0; i < 20; ++i) {
    low.push_back(i);
    high.push_back(100 + i);
  }
  EXPECT_NEAR(sample_distance(low, high).p * 137846528820 / 2, 1, 1e-9);
  EXPECT_THROW(sample_distance({}, {1}), Error);
}

TEST(SampleDistance, CountsAllOrdersOfBothSamples) {
  for (const int mask : {0b0000111, 0b0101001, 0b1100001, 0b0110100}) {
    const auto split = [](int of) {
      std::pair<std::vector<double>, std::vector<double>> both;
      for (int i = 0; i < 7; ++i) ((of >> i & 1) != 0 ? both.first : both.second).push_back(i);
      return both;
    };
    const auto [one, other] = split(mask);
    const SampleDistance found = sample_distance(one, other);
    double as_far = 0, all = 0;
    for (int order = 0; order < 128; ++order) {
      const auto [a, b] = split(order);
      if (a.size() != 3) continue;
      ++all;
      as_far += sample_distance(a, b).distance >= found.distance - 1e-12;
    }
    EXPECT_NEAR(found.p, as_far / all, 1e-12);
  }
}

TEST(SampleDistance, IsTheLimitForManyPairs) {
  std::vector<double> one, other;
  for (int i = 0; i < 10001; ++i) {
    one.push_back(i);
    other.push_back(i + 230.5);
  }
  const double exact_like = 2 * std::exp(-2 * 231. * 231 / 10001 / 10001 * 10001 / 2);
  EXPECT_NEAR(sample_distance(one, other).p, exact_like, 2e-4) << "the series' first term";
}
