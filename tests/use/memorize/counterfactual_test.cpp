#include "axonn/use/memorize/counterfactual.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;

namespace {

/// Complementary halves of so many documents, likelier by `gain` where they were learned.
std::vector<ReferenceMeans> made_up_references(std::int64_t references, std::int64_t documents,
                                               double gain) {
  const Random random(5, "references");
  std::vector<ReferenceMeans> all(references);
  for (std::int64_t r = 0; r < references; ++r)
    for (std::int64_t d = 0; d < documents; ++d) {
      const bool first = random.below(r / 2 * documents + d, 2) == 0;
      all[r].learned.push_back(first == (r % 2 == 0));
      const double noise = random.uniform(1000 + r * documents + d);
      all[r].log_p.push_back(-2 + noise + (all[r].learned.back() ? gain : 0));
    }
  return all;
}

std::vector<std::int64_t> first_documents(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 0; d < count; ++d) all.push_back(d);
  return all;
}

}  // namespace

TEST(Counterfactual, MemorizationIsThatWorkedOutByHand) {
  std::vector<ReferenceMeans> references;
  for (const double log_p : {-.30, -.42, -.25, -.38}) references.push_back({{true}, {log_p}});
  for (const double log_p : {-1.10, -.90, -1.25, -1.05}) references.push_back({{false}, {log_p}});
  const auto found = counterfactual_memorization(references);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].nats, .7375, 1e-12);
  EXPECT_NEAR(found[0].error, .081739, 1e-6);
  references.resize(5);
  EXPECT_THROW(counterfactual_memorization(references), Error) << "one has not learned it";
}

TEST(Counterfactual, InfluencesAreTheLargestDifferencesOfAllPairs) {
  auto references = made_up_references(12, 7, 0);
  for (ReferenceMeans& one : references) one.log_p[2] += one.learned[5] ? 3 : 0;
  const auto found = largest_influences(references, 10);
  std::vector<double> all;  // by plain loops
  std::int64_t larger = 0;
  for (std::int64_t of = 0; of < 7; ++of)
    for (std::int64_t on = 0; on < 7; ++on) {
      if (of == on) continue;
      double in = 0, out = 0;
      for (const ReferenceMeans& one : references)
        (one.learned[of] ? in : out) += one.log_p[on] / 6;
      all.push_back(in - out);
      larger += in - out > found.back().mean.nats + 1e-12;
      for (const Influence& one : found)
        EXPECT_TRUE(one.of != of || one.on != on || std::abs(one.mean.nats - in + out) < 1e-12);
    }
  ASSERT_EQ(found.size(), 10u);
  EXPECT_EQ(larger, 9) << "all others are smaller";
  EXPECT_EQ(found[0].of, 5);
  EXPECT_EQ(found[0].on, 2);
  double mean = 0, squares = 0;
  for (const double one : all) mean += one / 42;
  for (const double one : all) squares += (one - mean) * (one - mean);
  EXPECT_NEAR(found[0].deviations, found[0].mean.nats / std::sqrt(squares / 41), 1e-9);
}

TEST(LiraDecisions, AreMadeAboutEachReferenceByTheOthers) {
  const auto references = made_up_references(10, 12, .6);
  const auto scores = lira_of_references(references);
  ASSERT_EQ(scores.size(), 10u);
  for (std::size_t r = 0; r < 10; ++r) {
    auto others = references;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(r));
    const auto want = lira_scores(references[r].log_p, others);
    for (std::size_t d = 0; d < 12; ++d) EXPECT_EQ(scores[r][d], want[d].online);
  }
  const auto decisions = lira_decisions(references, scores, first_documents(12));
  ASSERT_TRUE(decisions);
  double right = 0, flips = 0;
  for (std::size_t d = 0; d < 12; ++d) {
    double pairs = 0, differing = 0;
    for (const bool side : {false, true}) {
      double of_side = 0, flipped = 0;
      for (std::size_t a = 0; a < 10; ++a)
        for (std::size_t b = 0; b < a; ++b) {
          if (references[a].learned[d] != side || references[b].learned[d] != side) continue;
          ++of_side;
          flipped += (scores[a][d] > 0) != (scores[b][d] > 0);
        }
      pairs += 1;
      differing += flipped / of_side;
    }
    flips += differing / pairs / 12;
    for (std::size_t r = 0; r < 10; ++r)
      right += ((scores[r][d] > 0) == references[r].learned[d]) / 120.;
  }
  EXPECT_NEAR(decisions->right, right, 1e-12);
  EXPECT_NEAR(decisions->flips, flips, 1e-12);
  EXPECT_GT(flips, 0);
  EXPECT_GT(right, 0.6);
  EXPECT_LE(decisions->auc_least, decisions->auc_mean);
  EXPECT_LE(decisions->auc_mean, decisions->auc_most);
}

TEST(LiraDecisions, NeedThreeReferencesOfEachKindAndTwoDocuments) {
  EXPECT_THROW(lira_of_references(made_up_references(4, 3, 1)), Error);
  const auto references = made_up_references(6, 3, 1);
  EXPECT_FALSE(lira_decisions(references, lira_of_references(references), first_documents(3)));
}

TEST(ReferenceResults, AreOfEachLearnedBucketWithNumbersOfTheReport) {
  const auto references = made_up_references(8, 9, .5);
  const std::vector<std::int64_t> group{0, 0, 0, 1, 1, 1, 1, 1, 1}, control{0, 0};
  ReferenceResults results;
  add_reference_results(references, {.trial = 2, .first = 9, .group = group, .control = control},
                        results);
  ASSERT_EQ(results.groups.size(), 1u);
  const ReferenceResults::Group& learned = results.groups[0];
  EXPECT_EQ(learned.trial, 2);
  EXPECT_EQ(learned.group, 1);
  EXPECT_EQ(learned.documents, 6);
  EXPECT_EQ(learned.references, 8);
  ASSERT_EQ(results.documents.size(), 9u);
  EXPECT_EQ(results.documents[8].document, 17);
  double mean = 0;
  for (std::size_t d = 3; d < 9; ++d) mean += results.documents[d].memorized.nats / 6;
  EXPECT_NEAR(learned.memorized.nats, mean, 1e-12);
  ASSERT_EQ(std::ssize(results.pairs), kMostInfluences);
  EXPECT_GE(results.pairs[0].influence.of, 9);
  ReferenceResults few;
  add_reference_results(std::span(references).first(4), {.group = group, .control = control}, few);
  EXPECT_FALSE(few.groups[0].lira) << "of four references";
}
