// Training on packed conversations: the loss is the mean over the targets that count.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// tiny_config trained on conversations, encoded as bytes; each sequence holds one to three of
/// them.
Config chats(const std::string& folder, ModelFamily family = ModelFamily::llama) {
  Config config = tiny_config(folder);
  config.model.family = family;
  config.model.kv_heads = family == ModelFamily::llama ? 6 : 12;
  config.training.seq_len = 384;
  config.training.global_batch = 6;
  config.data = {.jsonl = {folder + ".jsonl"}, .validation = "0.2"};
  std::ofstream(config.data.jsonl.front()) << synthetic_conversations(60, 1);
  return config;
}

}  // namespace

TEST(FineTuning, HasTheLossesOfOneRankOnEveryGridAndForEveryMicroBatch) {
  test::TemporaryPath folder;
  for (ModelFamily family : {ModelFamily::llama, ModelFamily::gpt}) {
    const Config config = chats(folder / "run", family);
    const std::vector<double> one = first_losses(config);
    EXPECT_NEAR(one.front(), std::log(256), 0.3)
        << "the initial loss is not the mean over the targets that count";
    for (const GridShape grid :
         {GridShape{.z = 2}, GridShape{.data = 3}, GridShape{2, 2, 1, 1}, GridShape{2, 1, 2, 1}})
      EXPECT_LE(largest_difference(first_losses(on_grid(config, grid)), one), 1e-5)
          << to_string(grid);
    Config cut = config;
    cut.training.micro_batch = 3;
    EXPECT_LE(largest_difference(first_losses(cut), one), 1e-5)
        << "micro-batches have different numbers of targets";
    cut.parallelism.chunks = 3;
    cut.activation_checkpoint.mode = RecomputeMode::full;
    EXPECT_LE(largest_difference(first_losses(cut), one), 1e-5);
  }
}

TEST(FineTuning, ResumesToTheBitWithItsCountOfTokens) {
  test::TemporaryPath folder;
  const Config whole = chats(folder / "whole");
  train_on_threads(whole);
  Config rest = chats(folder / "rest");
  rest.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
  train_on_threads(rest);
  auto want = metrics_of(whole), got = metrics_of(rest);
  want.erase(want.begin(), want.begin() + 5);
  EXPECT_EQ(column(got, "loss"), column(want, "loss"));
  EXPECT_EQ(column(got, "tokens"), column(want, "tokens"));
  EXPECT_LT(want.back().at("tokens"), 10 * 6 * 384) << "padding was counted";
  EXPECT_GT(want.back().at("tokens"), 10 * 6 * 384 * 0.7);
}

TEST(FineTuning, ValidationLossIsTheMeanOverTheHeldOutTargetsThatCount) {
  test::TemporaryPath folder;
  const Config config = chats(folder / "run");
  std::vector<double> losses;
  for (const auto& [grid, micro] : {std::pair{GridShape{}, 1}, {GridShape{.z = 2}, 3}}) {
    Config cut = on_grid(config, grid);
    cut.training.micro_batch = micro;
    validate(cut);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      Training training(prepared(cut), world, make_cpu_backend(1));
      training.model.initialise();
      EXPECT_GT(training.validation_windows(), 2);
      EXPECT_LE(training.validation_windows(), 12) << "there are only twelve conversations";
      const double loss = training.validate();
      if (world.rank() == 0) losses.push_back(loss);
    });
  }
  EXPECT_NEAR(losses[1] / losses[0], 1, 1e-5);
}

TEST(FineTuning, TakesTheMemoryThatADryStepPredicts) {
  test::TemporaryPath folder;
  Config config = on_grid(chats(folder / "run"), {.y = 2, .z = 2});
  config.training.global_batch = 12;  // three micro-batches
  config.training.micro_batch = 2;
  expect_dry_peak(prepared(config));
}

TEST(FineTuning, ADryRunShowsWhatTheLossSees) {
  test::TemporaryPath folder;
  const DryRun run = dry_run(prepared(chats(folder / "run")), 0);
  EXPECT_THAT(run.sample, testing::ContainsRegex("sequence 1 of step 1: documents .* of .*jsonl"));
  EXPECT_THAT(run.input, HasSubstr("<|im_start|>user\\n"));
  EXPECT_THAT(run.target, testing::StartsWith("\"..."));
  EXPECT_THAT(run.target, HasSubstr("<|im_end|>..."));
}

TEST(FineTuning, NotesTheDropoutThatTheModelsConfigHasAndTrainingHereHasNot) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  const ModelConfig model = resolved(config.model, config.model.vocab, config.training.seq_len);
  std::filesystem::create_directories(folder / "base");
  test::write_model(folder / "base", model, {});
  std::string text = to_hugging_face_config(model, {});
  const std::string none = R"("attn_pdrop": 0.0)";
  ASSERT_NE(text.find(none), text.npos);
  for (const bool has : {false, true}) {
    if (has) text.replace(text.find(none), none.size(), R"("attn_pdrop": 0.25)");
    test::spill(folder / "base/config.json", text);
    Config run = config;
    run.output.dir = folder / (has ? "with" : "without");
    run.model = {.path = folder / "base"};
    train_on_threads(with_stored_model(run, {}));
    const std::string log = test::slurp(run.output.dir + "/logs/rank-0.log");
    EXPECT_EQ(log.find("config.json has attn_pdrop = 0.25, which has no effect") != log.npos, has);
    EXPECT_EQ(log.find("which has no effect") != log.npos, has);
  }
}
