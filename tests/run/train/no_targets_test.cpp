// Steps and validations of which no target counts in the loss.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/run/records/run_steps.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

constexpr int kWindow = 8, kEmptyFrom = 26, kEmptyTo = 35, kAllSteps = 44;

std::string document_line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + '\n';
}

/// A document for each token. Its first token is no target, so no target counts.
std::string single_tokens(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += document_line("a");
  return lines;
}

/// A run whose step n reads window n - 1, of which those of steps kEmptyFrom to kEmptyTo have no
/// targets. It learns nothing, so all losses are about the same.
Config with_empty_steps(const test::TemporaryPath& folder) {
  const std::string text = document_line(std::string(kWindow * (kEmptyFrom - 1), 'a')) +
                           single_tokens(kWindow * (kEmptyTo - kEmptyFrom + 1) + 1) +
                           document_line(std::string(kWindow * (kAllSteps - kEmptyTo + 1), 'a'));
  test::spill(folder / "text.jsonl", text);
  Config config = tiny_config(folder / "out");
  config.data = {.text = {folder / "text.jsonl"}, .validation = "0", .shuffle = false};
  config.data.documents = DocumentMode::separate;
  config.training.seq_len = kWindow;
  config.training.global_batch = 1;
  config.training.steps = kAllSteps;
  config.training.skip_outliers = 1.2;
  config.optimizer.lr = 1e-9;
  return config;
}

}  // namespace

TEST(NoTargets, AStepHasNoLossAndCountsNeitherInTheCurveNorInTheMeansOfOutliers) {
  test::TemporaryPath folder;
  Config config = with_empty_steps(folder);
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}}) {
    config.output.dir = folder / to_string(grid);
    train_on_threads(on_grid(config, grid));
    const auto metrics = metrics_of(config);
    ASSERT_EQ(std::ssize(metrics), kAllSteps);
    int empty = 0;
    for (const nlohmann::json& step : metrics) {
      const int number = step.at("step");
      const bool marked = step.value("no_targets", false);
      EXPECT_EQ(marked, number >= kEmptyFrom && number <= kEmptyTo) << number;
      EXPECT_EQ(step.at("loss").is_null(), marked) << number;
      EXPECT_FALSE(step.value("skipped", false)) << number;
      empty += marked ? 1 : 0;
    }
    EXPECT_EQ(empty, kEmptyTo - kEmptyFrom + 1);
    read_run_steps(config.output.dir, [](const RunStep& step) {
      for (const RunValue& value : step.values)
        EXPECT_TRUE(std::isfinite(value.value)) << value.key;
    });
    const std::string log = test::slurp(config.output.dir + "/logs/rank-0.log");
    EXPECT_THAT(log, AllOf(HasSubstr("step 26 has no loss"), Not(HasSubstr("step 27 has no loss")),
                           HasSubstr("10 of 44 steps had no loss"), Not(HasSubstr("loss 0.0000"))));
  }
}

TEST(NoTargets, ValidationDataWithoutTargetsAreRefusedBeforeTheFirstStep) {
  test::TemporaryPath folder;
  Config config = with_empty_steps(folder);
  test::spill(folder / "validation.jsonl", single_tokens(10 * kWindow));
  config.data.validation = folder / "validation.jsonl";
  config.training.eval_every = 20;
  for (const GridShape grid : {GridShape{}, GridShape{.z = 2}}) {
    config.training.global_batch = grid.z;
    EXPECT_THAT(failure_of(on_grid(config, grid)),
                HasSubstr("no target of the validation data counts"));
  }
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/metrics.jsonl"));
}
