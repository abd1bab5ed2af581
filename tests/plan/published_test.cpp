// Compares the planner with the steps that the authors of arXiv 2502.08145 timed. docs/planning.md
// has the table; bench_plan_published writes it.
#include "tests/plan/published.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

void expect_within(const std::vector<Predicted>& all, double bound) {
  for (const Predicted& one : all) EXPECT_LE(std::abs(one.error()), bound) << table_row(one);
}

void expect_each_faster_than_the_one_before(const std::vector<Predicted>& all) {
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_LT(all[i].time.step_s, all[i - 1].time.step_s) << table_row(all[i]);
}

/// The predicted seconds in a row of the table: its last number but one.
double predicted_in(const std::string& row) {
  std::istringstream cells(row);
  std::vector<std::string> all;
  for (std::string cell; std::getline(cells, cell, '|');) all.push_back(cell);
  return all.size() < 3 ? 0 : std::stod(all[all.size() - 2]);
}

}  // namespace

TEST(PublishedRuns, FiveOfSevenWeakScalingPointsAreWithinTenPercentAndAllWithinAQuarter) {
  const std::vector<Predicted> all = predict(weak_scaling());
  expect_within(all, 0.25);
  const auto close =
      std::ranges::count_if(all, [](const Predicted& one) { return std::abs(one.error()) <= 0.1; });
  EXPECT_GE(close, 5);
}

TEST(PublishedRuns, OverlapStepByStepIsWithinFifteenPercentAndInTheRightOrder) {
  const std::vector<Predicted> all = predict(overlap_steps());
  expect_within(all, 0.15);
  expect_each_faster_than_the_one_before(all);
}

TEST(PublishedRuns, TheStepsFromTheBaselineAreWithinFifteenPercentAndInTheRightOrder) {
  for (const auto& runs : {gains_5b(), gains_80b()}) {
    const std::vector<Predicted> all = predict(runs);
    expect_within(all, 0.15);
    expect_each_faster_than_the_one_before(all);
  }
}

TEST(PublishedRuns, TheTableInTheDocsHasThePredictedTimes) {
  // The tolerance allows small changes of the prediction without an update of the table.
  constexpr double kAsGood = 0.02;
  const std::vector<std::string> lines = read_source("docs/planning.md").lines;
  for (const auto& runs : {weak_scaling(), overlap_steps(), gains_5b(), gains_80b()})
    for (const Predicted& one : predict(runs)) {
      const std::string row = table_row(one), run = table_key(one.run);
      const auto line = std::ranges::find_if(
          lines, [&](const std::string& text) { return text.starts_with(run); });
      ASSERT_NE(line, lines.end()) << "docs/planning.md has no row " << row;
      EXPECT_NEAR(predicted_in(*line), one.time.step_s, kAsGood * one.time.step_s)
          << "docs/planning.md has " << *line << ", but the prediction is " << row;
    }
}
