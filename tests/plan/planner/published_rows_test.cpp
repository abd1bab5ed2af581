// Compares plans for DGX-like machines with the speeds that others published.
// docs/planning-model.md has the table; bench_plan_published writes it.
#include "tests/plan/planner/published_rows.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

const std::vector<PredictedRow>& predicted_rows() {
  static const std::vector<PredictedRow> all = [] {
    std::vector<PredictedRow> predicted;
    for (const PublishedRow& row : published_rows()) predicted.push_back(predict(row));
    return predicted;
  }();
  return all;
}

}  // namespace

TEST(PublishedRows, LieInTheRangeThatTheMachineFileStates) {
  double mean = 0;
  for (const PredictedRow& one : predicted_rows()) {
    EXPECT_GE(one.row.seconds(), one.range.first) << table_row(one);
    EXPECT_LE(one.row.seconds(), one.range.second) << table_row(one);
    mean += std::abs(one.error()) / static_cast<double>(predicted_rows().size());
  }
  EXPECT_LE(mean, 0.13);
}

TEST(PublishedRows, LieInTheRangeOfPlansThatComputeNothingAgain) {
  // torchtitan's steps of 8B on 500 W and 2.4 TB/s, as DGX H100 and its own machine are planned.
  for (const int devices : {8, 128})
    for (const char* const machine : {"dgx-h100", "grand-teton"}) {
      PublishedRow row = published_row("torchtitan, 2024-12", "Llama 3 8B", devices);
      row.machine = machine;
      row.settings = {};
      const PredictedRow planned = predict(row);
      for (const double tokens : {5605.0, 5762.0, 6667.0, 7000.0}) {
        row.tokens_per_s = tokens;
        EXPECT_GE(row.seconds(), planned.range.first) << machine << ' ' << devices;
        EXPECT_LE(row.seconds(), planned.range.second) << machine << ' ' << devices;
      }
    }
}

TEST(PublishedRows, TheJitterOfDgxIsFittedToThreeStepsThatGrowWithTheDevices) {
  struct Growth {
    const char *program, *model;
    int from, to;
  };
  constexpr Growth kGrowths[] = {{"NVIDIA, dgxc-benchmarking v25.02", "Nemotron-4 15B", 16, 1024},
                                 {"torchtitan, 2024-12", "Llama 3 8B", 8, 128},
                                 {"llm-foundry v0.4", "MPT 7B", 8, 512}};
  const auto squares = [&](void (*change)(Machine&)) {
    double sum = 0;
    for (const auto& [program, model, from, to] : kGrowths) {
      const PublishedRow &few = published_row(program, model, from),
                         &many = published_row(program, model, to);
      sum += std::pow(predict(many, change).seconds / predict(few, change).seconds -
                          many.seconds() / few.seconds(),
                      2);
    }
    return sum;
  };
  const double fitted = squares([](Machine&) {});
  EXPECT_LT(fitted, squares([](Machine& machine) { machine.jitter_s *= 3; }));
  EXPECT_LT(fitted, squares([](Machine& machine) { machine.jitter_s /= 3; }));
}

TEST(PublishedRows, TheTableInTheDocsHasThem) {
  constexpr double kAsGood = 0.02;
  const std::vector<std::string> lines = read_source("docs/planning-model.md").lines;
  for (const PredictedRow& one : predicted_rows()) {
    const std::string row = table_row(one), key = table_key(one.row);
    const auto line =
        std::ranges::find_if(lines, [&](const std::string& text) { return text.starts_with(key); });
    ASSERT_NE(line, lines.end()) << "docs/planning-model.md has no row " << row;
    std::string predicted = line->substr(line->find('|', key.size()) + 1);
    std::erase(predicted, ',');
    const double seconds = one.row.tokens_per_s * one.row.seconds() / std::stod(predicted);
    EXPECT_NEAR(seconds, one.seconds, kAsGood * one.seconds)
        << "docs/planning-model.md has " << *line << ", but the prediction is " << row;
  }
}
