// Compares the planner with the steps that the authors of arXiv 2502.08145 timed.
// docs/planning-model.md has the table; bench_plan_published writes it.
#include "tests/plan/planner/published.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// The predicted seconds in a row of the table: its last number but one.
double predicted_in(const std::string& row) {
  std::istringstream cells(row);
  std::vector<std::string> all;
  for (std::string cell; std::getline(cells, cell, '|');) all.push_back(cell);
  return all.size() < 3 ? 0 : std::stod(all[all.size() - 2]);
}

}  // namespace

TEST(PublishedRuns, LeftOutOfTheFitEachIsWithinAFifthAndTheirMeanErrorIsEightPercent) {
  const std::vector<Predicted> all = leave_one_out(published_runs());
  const Errors errors = errors_of(all);
  EXPECT_LE(errors.mean, 0.08);
  for (const Predicted& one : all) EXPECT_LE(std::abs(one.error()), 0.2) << table_row(one);
  for (const char* const machine : {"frontier", "perlmutter", "alps"}) {
    std::vector<Predicted> of;
    std::ranges::copy_if(all, std::back_inserter(of),
                         [&](const Predicted& one) { return one.run.machine == machine; });
    const double said = read_machine(std::string(machine) + "-paper").error;
    EXPECT_NEAR(errors_of(of).worst, said, 0.02) << machine;
    EXPECT_LE(said, read_machine(machine).error) << machine;
  }
}

TEST(PublishedRuns, TheSlopeOfWeakScalingIsWithinTenPercentagePoints) {
  const std::vector<Predicted> all = predict(weak_scaling());
  for (const char* const machine : {"frontier", "perlmutter", "alps"}) {
    std::vector<Predicted> of;
    std::ranges::copy_if(all, std::back_inserter(of),
                         [&](const Predicted& one) { return one.run.machine == machine; });
    const double published = of.back().run.seconds / of.front().run.seconds - 1,
                 predicted = of.back().time.step_s / of.front().time.step_s - 1;
    EXPECT_NEAR(predicted, published, 0.1) << machine;
    EXPECT_GT(predicted * published, 0) << machine;
  }
}

TEST(PublishedRuns, EachOptimisationIsFasterThanTheOneBefore) {
  const auto expect_faster = [](const std::vector<Predicted>& all) {
    for (std::size_t i = 1; i < all.size(); ++i)
      EXPECT_LT(all[i].time.step_s, all[i - 1].time.step_s) << table_row(all[i]);
  };
  expect_faster(predict(gains_5b()));
  expect_faster(predict(gains_80b()));
}

TEST(PublishedRuns, TheTableInTheDocsHasThePredictedTimes) {
  // The tolerance allows small changes of the prediction without an update of the table.
  constexpr double kAsGood = 0.02;
  const std::vector<std::string> lines = read_source("docs/planning-model.md").lines;
  for (const Predicted& one : leave_one_out(published_runs())) {
    const std::string row = table_row(one), run = table_key(one.run);
    const auto line =
        std::ranges::find_if(lines, [&](const std::string& text) { return text.starts_with(run); });
    ASSERT_NE(line, lines.end()) << "docs/planning-model.md has no row " << row;
    EXPECT_NEAR(predicted_in(*line), one.time.step_s, kAsGood * one.time.step_s)
        << "docs/planning-model.md has " << *line << ", but the prediction is " << row;
  }
}
