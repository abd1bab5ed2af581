#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/report/report.h"

#include "tests/use/memorize/report/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

TEST(Summary, SharesAreAveragedOverTrialsWithTheirRange) {
  const MemorizationSummary summary = summarize(small_study());
  const RecitationCell& learned = summary.at(0, 1, 0);
  EXPECT_EQ(learned.trials, 2);
  EXPECT_EQ(learned.documents, 2);
  EXPECT_EQ(learned.recitations, 4);
  EXPECT_EQ(learned.exact, 3);
  EXPECT_DOUBLE_EQ(learned.exact_percent.mean, 75);
  EXPECT_DOUBLE_EQ(learned.exact_percent.minimum, 50);
  EXPECT_DOUBLE_EQ(learned.exact_percent.maximum, 100);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 0).exact_percent.mean, 0);
  EXPECT_DOUBLE_EQ(summary.at(1, 1, 0).exact_percent.maximum, 0);
}

TEST(Summary, OtherFiguresAreMeansOverDocumentsAndTrials) {
  const MemorizationSummary summary = summarize(small_study());
  const RecitationCell& learned = summary.at(0, 1, 0);  // runs of 10, 4, 10 and 10 tokens
  EXPECT_DOUBLE_EQ(learned.longest_run, 8.5);
  EXPECT_DOUBLE_EQ(learned.token_accuracy, 0.85);
  EXPECT_DOUBLE_EQ(learned.edit_distance, 1.5);
  EXPECT_DOUBLE_EQ(learned.loss, 3 - 0.25 * 8.5);
}

TEST(Summary, TheMeanShareWeightsTrialsEquallyWhateverTheirDocuments) {
  MemorizationReport report = small_study();
  auto& second = report.runs[1].recitations;
  second.erase(second.begin() + 2);  // trial 2 recites one document of "6 epochs", exactly
  const RecitationCell learned = summarize(report).at(0, 1, 0);
  EXPECT_EQ(learned.recitations, 3);
  EXPECT_DOUBLE_EQ(learned.exact_percent.mean, 75);  // the mean of 50 and 100, not 2 of 3
  EXPECT_DOUBLE_EQ(learned.longest_run, 8);
}

TEST(Summary, VariantsHaveTheirTrialsLossesAndSeconds) {
  const MemorizationSummary summary = summarize(small_study());
  ASSERT_EQ(summary.variants.size(), 2U);
  const VariantSummary& goldfish = summary.variants[1];
  EXPECT_EQ(goldfish.name, "goldfish");
  EXPECT_EQ(goldfish.trials, 2);
  ASSERT_TRUE(goldfish.validation_loss && goldfish.kept_percent);
  EXPECT_DOUBLE_EQ(goldfish.validation_loss->mean, 2.875);
  EXPECT_DOUBLE_EQ(goldfish.validation_loss->minimum, 2.75);
  EXPECT_DOUBLE_EQ(goldfish.validation_loss->maximum, 3);
  EXPECT_DOUBLE_EQ(goldfish.kept_percent->mean, 50);
  EXPECT_DOUBLE_EQ(goldfish.train_seconds, 200);
  EXPECT_DOUBLE_EQ(goldfish.test_seconds, 20);
}

TEST(Summary, MissingValuesOfARunAreNotCounted) {
  MemorizationReport report = small_study();
  report.runs[0].validation_loss.reset();
  const MemorizationSummary summary = summarize(report);
  EXPECT_DOUBLE_EQ(summary.variants[0].validation_loss->mean, 3);  // the second trial only
  EXPECT_FALSE(summarize(small_audit()).variants[0].validation_loss);
}

TEST(Summary, PromptsAreOrderedByLengthAndTheWholePromptIsTheLongest) {
  const MemorizationSummary summary = summarize(small_audit());
  EXPECT_THAT(summary.prompts, testing::ElementsAre(1, 2, 0));
  EXPECT_EQ(summary.longest_prompt(), 0);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 1).exact_percent.mean, 0);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 2).exact_percent.mean, 50);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 0).exact_percent.mean, 100);
}

TEST(Summary, PromptsWithOffsetsAreApartAndTellNothingOfADocumentsEnd) {
  const MemorizationReport report = swept_audit();
  const MemorizationSummary summary = summarize(report);
  EXPECT_THAT(summary.prompts, testing::ElementsAre(0));
  EXPECT_THAT(summary.sweeps.at(0).prompts, testing::ElementsAre(2, 1)) << "by offset";
  EXPECT_EQ(summary.longest_prompt(), 0);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 1).exact_percent.mean, 0);
  EXPECT_DOUBLE_EQ(summary.at(0, 0, 2).exact_percent.mean, 50);
  for (const RankedRecitation& one : most_recited(report, "")) EXPECT_EQ(one.recitation->prompt, 0);
}

TEST(Summary, PromptsWithOtherSuffixesAreApart) {
  const MemorizationReport report = suffixes_audit();
  const MemorizationSummary summary = summarize(report);
  EXPECT_THAT(summary.prompts, testing::ElementsAre(2, 0));
  ASSERT_EQ(summary.sweeps.size(), 2u) << "one prompt of 8 tokens is no sweep";
  EXPECT_EQ(summary.sweeps[0].by, PromptSweep::By::length);
  EXPECT_THAT(summary.sweeps[0].prompts, testing::ElementsAre(2, 0));
  EXPECT_EQ(summary.sweeps[1].by, PromptSweep::By::suffix);
  EXPECT_THAT(summary.sweeps[1].prompts, testing::ElementsAre(1, 0)) << "4 and 10 tokens";
  for (const RankedRecitation& one : most_recited(report, "")) EXPECT_NE(one.recitation->prompt, 1);
}

TEST(Summary, AGroupWithoutRecitationsHasNoTrials) {
  MemorizationReport report = small_study();
  report.groups.emplace_back("never asked");
  report.group_sizes.push_back(0);
  const RecitationCell cell = summarize(report).at(1, 2, 0);
  EXPECT_EQ(cell.trials, 0);
  EXPECT_EQ(cell.documents, 0);
  report.runs.clear();
  EXPECT_TRUE(summarize(report).cells.empty());
}

TEST(Summary, ARecitationWithAnInvalidGroupIsRefused) {
  MemorizationReport report = small_study();
  report.runs[0].recitations[0].group = 2;
  EXPECT_THROW(summarize(report), Error);
}

TEST(WilsonInterval, HasThePublishedValues) {
  // 81 of 263: Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
  // Medicine, 1998, table I, method 3: 0.2553 to 0.3662.
  EXPECT_NEAR(wilson_interval(81, 263).low, 25.53, 0.005);
  EXPECT_NEAR(wilson_interval(81, 263).high, 36.62, 0.005);
  EXPECT_NEAR(wilson_interval(15, 148).low, 6.24, 0.005);
  EXPECT_NEAR(wilson_interval(15, 148).high, 16.05, 0.005);
}

TEST(WilsonInterval, IncludesNoneAndAllExactly) {
  for (std::int64_t count = 1; count < 100; ++count) {
    EXPECT_EQ(wilson_interval(0, count).low, 0);
    EXPECT_EQ(wilson_interval(count, count).high, 100);
  }
  EXPECT_NEAR(wilson_interval(0, 20).high, 16.11, 0.005);
  EXPECT_NEAR(wilson_interval(29, 29).low, 88.30, 0.005);
  EXPECT_THROW(wilson_interval(0, 0), Error);
}

TEST(Ranking, HasTheBestRecitationOfEachDocument) {
  const MemorizationReport report = small_study();
  const auto ranked = most_recited(report, "standard", 1);
  ASSERT_EQ(ranked.size(), 2U);
  EXPECT_EQ(ranked[0].recitation->document, 2);
  EXPECT_EQ(ranked[0].run->trial, 1);  // the first of two equal ones
  EXPECT_EQ(ranked[1].recitation->document, 3);
  EXPECT_EQ(ranked[1].run->trial, 2);
}

TEST(Ranking, OfEqualRecitationsTheShorterPromptRanksHigher) {
  const MemorizationReport report = small_audit();
  const auto ranked = most_recited(report, "");
  std::vector<std::int64_t> documents, prompts;
  for (const RankedRecitation& one : ranked) {
    documents.push_back(one.recitation->document);
    prompts.push_back(one.recitation->prompt);
  }
  EXPECT_THAT(documents, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(prompts, testing::ElementsAre(2, 0, 0, 2));
}

}  // namespace
