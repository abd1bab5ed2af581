#include "axonn/use/memorize/extraction.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

TargetRecord token(std::int64_t rank, std::vector<float> log_q = {}) {
  return {.log_p = -1, .rank = rank, .log_q = std::move(log_q)};
}

/// The message of the error that a policy causes.
std::string refusal_of(const std::string& text) {
  try {
    parse_policy(text, "policies");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST(Policies, AreReadFromTheirTexts) {
  EXPECT_EQ(parse_policy("greedy", ""), (SamplingPolicy{.temperature = 0}));
  EXPECT_EQ(parse_policy("t=1", ""), SamplingPolicy{});
  EXPECT_EQ(parse_policy("t=0.7,k=40,p=0.95", ""),
            (SamplingPolicy{.temperature = 0.7, .top_k = 40, .top_p = 0.95}));
  EXPECT_EQ(parse_policy("p=0.5", ""), (SamplingPolicy{.top_p = 0.5}));
}

TEST(Policies, ThatAreNotUnderstoodAreRefusedWithAnExample) {
  for (const char* text : {"t=0", "k=0", "k=1.5", "p=2", "p=0", "t=x", "t=1x", "min_p=0.1", "t",
                           "t=1,,", "t=1,k=40,t=1"})
    EXPECT_THAT(refusal_of(text), HasSubstr("policies has '" + std::string(text) + "'")) << text;
  EXPECT_THAT(refusal_of(""), HasSubstr("policies has an empty policy"));
}

TEST(LeastTries, AreThoseWorkedOutByHand) {
  const auto tries = [](double log_p) {
    const double log10_p = log_p / std::log(10);
    return std::vector{least_tries(log10_p, 0.5), least_tries(log10_p, 0.9),
                       least_tries(log10_p, 0.999)};
  };
  EXPECT_EQ(tries(-3.573056), (std::vector<double>{25, 81, 243}));
  EXPECT_EQ(tries(-4.195755), (std::vector<double>{46, 152, 456}));
  EXPECT_EQ(tries(-2.931735), (std::vector<double>{13, 43, 127}));
  EXPECT_EQ(tries(-4.038329), (std::vector<double>{39, 130, 389}));
  EXPECT_EQ(tries(-3.065456), (std::vector<double>{15, 49, 145}));
  EXPECT_EQ(least_tries(kNever, 0.5), -kNever);
  EXPECT_EQ(least_tries(0, 0.999), 1);
}

TEST(LeastTries, OfTinyProbabilitiesHaveAllDigits) {
  // ln 2 / 1e-30; the formula with log1p would divide by -1e-30 too, the one with 1 - p by 0.
  EXPECT_NEAR(least_tries(-30, 0.5) / 6.931471805599453e29, 1, 1e-12);
  EXPECT_NEAR(least_tries(-11.9999, 0.5) / least_tries(-12.0001, 0.5), std::pow(10, -0.0002), 1e-9);
}

TEST(LeastProbability, IsThatWhichTheTriesReach) {
  EXPECT_NEAR(std::pow(10, least_log10_p(10, 0.5)), 0.066967, 1e-6);
  EXPECT_NEAR(std::pow(10, least_log10_p(1e3, 0.5)), 6.929e-4, 1e-7);
  EXPECT_NEAR(std::pow(10, least_log10_p(1e5, 0.5)), 6.93145e-6, 1e-10);
  for (const double p : ExtractionGrid().p)
    for (const double n : {1.0, 7.0, 1000.0}) {
      const double least = least_log10_p(n, p);
      EXPECT_LE(least_tries(least + 1e-9, p), n);
      EXPECT_EQ(least_tries(least - 1e-9, p), n + 1);
    }
}

TEST(ExtractionGrid, TakesNumbersThatAscend) {
  const auto refusal = [](const std::vector<std::int64_t>& n, const std::vector<double>& p) {
    try {
      extraction_grid(n, p, "--n", "--p");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const ExtractionGrid grid =
      extraction_grid(std::vector<std::int64_t>{1, 7}, std::vector{0.25, 0.75}, "n", "p");
  EXPECT_EQ(grid.n, (std::vector<double>{1, 7}));
  EXPECT_EQ(grid.p, (std::vector{0.25, 0.75}));
  EXPECT_EQ(grid.shown_p(), 0.25);
  EXPECT_EQ(ExtractionGrid().shown_p(), 0.5);
  EXPECT_EQ(refusal({1, 7}, {0.5}), "accepted");
  EXPECT_THAT(refusal({}, {0.5}), HasSubstr("--n: numbers of samples ascend from 1"));
  EXPECT_THAT(refusal({0, 7}, {0.5}), HasSubstr("--n: "));
  EXPECT_THAT(refusal({7, 7}, {0.5}), HasSubstr("--n: "));
  EXPECT_THAT(refusal({1}, {}), HasSubstr("--p: probabilities ascend between 0 and 1"));
  EXPECT_THAT(refusal({1}, {0, 0.5}), HasSubstr("--p: "));
  EXPECT_THAT(refusal({1}, {0.5, 1}), HasSubstr("--p: "));
  EXPECT_THAT(refusal({1}, {0.5, 0.25}), HasSubstr("--p: "));
}

TEST(SuffixRecord, AddsLogProbabilitiesAndCountsGreedyTokens) {
  const std::vector<TargetRecord> suffix{token(2, {std::log(.221733f), -1}),
                                         token(2, {std::log(.335106f), kNever}),
                                         token(1, {std::log(.377772f), -1})};
  const SuffixRecord record = suffix_record(suffix);
  EXPECT_NEAR(record.log10_p[0] * std::log(10), -3.573056, 5e-6);
  EXPECT_EQ(record.log10_p[1], kNever);
  EXPECT_FALSE(record.greedy_exact);
  EXPECT_DOUBLE_EQ(record.greedy_accuracy, 1.0 / 3);
  EXPECT_DOUBLE_EQ(record.extraction_strength, 1.0 / 3);
}

TEST(SuffixRecord, HasAnExtractionStrengthOf0WhereTheLastTokenIsWrong) {
  const SuffixRecord wrong = suffix_record(std::vector{token(1), token(1), token(3)});
  EXPECT_EQ(wrong.extraction_strength, 0);
  EXPECT_DOUBLE_EQ(wrong.greedy_accuracy, 2.0 / 3);
  const SuffixRecord right = suffix_record(std::vector{token(1), token(1)});
  EXPECT_TRUE(right.greedy_exact);
  EXPECT_EQ(right.extraction_strength, 1);
}
