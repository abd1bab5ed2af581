#include "axonn/plan/measure/dry_rollouts.h"

#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/plan/measure/dry_run.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"
#include "axonn/use/rewards/rollout_sampler.h"

#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr std::int64_t kPrompt = 30;

/// A run on 24 answers of up to 12 tokens to prompts of kPrompt.
Config writing_config(const test::TemporaryPath& folder) {
  Config config = tiny_config(folder / "run");
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  if (!std::filesystem::exists(folder / "prompts.jsonl")) {
    test::save_checkpoint(folder / "model", resolved(config.model, config.model.vocab, 48), {});
    std::ofstream lines(folder / "prompts.jsonl");
    for (int i = 0; i < 6; ++i)
      lines << R"({"prompt": ")" << std::string(kPrompt, static_cast<char>('p' + i))
            << R"(", "answer": )" << i << "}\n";
  }
  config.model.path = folder / "model";
  config.training.seq_len = 48;
  config.training.global_batch = 24;
  config.data = {.jsonl = {folder / "prompts.jsonl"}, .eod = 101};
  config.rl = {.loss = PolicyLoss::grpo, .group = 4, .max_tokens = 12, .rewards = {"number"}};
  return config;
}

/// The peak of each rank while the second generation is written.
std::vector<ArenaStats> peaks_of(const PreparedRun& run) {
  std::vector<ArenaStats> peaks(run->parallelism.grid().ranks());
  run_ranks(static_cast<int>(peaks.size()), [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1), {.make_sampler = make_rollout_sampler});
    training.model.initialise();
    if (training.reference) training.reference->initialise();
    training.run(0);
    const auto sampler = make_rollout_sampler(training.model, training.corpora.front());
    training.model.arena().reset_peak();
    RolloutFile answers;
    sampler->write(1, answers);
    EXPECT_EQ(answers.answers.size(), 24);
    peaks[world.rank()] = training.model.arena().stats();
  });
  return peaks;
}

void expect_peaks(const Config& config, const std::string& name) {
  const PreparedRun run = prepared(stored(config));
  const std::vector<ArenaStats> real = peaks_of(run);
  for (int rank = 0; rank < std::ssize(real); ++rank) {
    SCOPED_TRACE(concat(name, ", grid ", to_string(config.parallelism.grid()), ", rank ", rank));
    const DryRollouts dry = dry_rollouts(run, rank, {.prompt_tokens = kPrompt});
    EXPECT_EQ(dry.memory.peak_bytes, real[rank].peak_bytes);
    EXPECT_EQ(dry.memory.peak_by, real[rank].peak_by);
    EXPECT_EQ(dry.memory.live_bytes, real[rank].live_bytes);
    EXPECT_EQ(dry.at_once, 24);
  }
}

}  // namespace

TEST(DryRollouts, TakeTheMemoryOfWritingAnswersToTheByteOnEveryGrid) {
  test::TemporaryPath folder;
  const Config config = writing_config(folder);
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 1, 2, 1}})
    for (const bool holds : {true, false}) {
      Config other = on_grid(config, grid);
      other.rl.hold_weights = holds;
      expect_peaks(other, holds ? "held" : "gathered");
    }
}

TEST(DryRollouts, TakeTheMemoryOfWritingAnswersForEveryKindOfRun) {
  test::TemporaryPath folder;
  Config config = on_grid(writing_config(folder), {.z = 2});
  config.training.dtype = DType::bf16;
  expect_peaks(config, "bf16");
  config.model.window = 16;
  expect_peaks(config, "window");
  config.model.window = 0;
  config.rl.temperature = 0.7;
  config.rl.steps_per_generation = 2;
  config.training.global_batch = 12;
  expect_peaks(config, "two steps");
  config.parallelism.keep_weights = KeepWeights::step;
  expect_peaks(config, "kept weights");
  config.parallelism.keep_weights = KeepWeights::none;
  config.model.lora.rank = 4;
  config.rl.kl = 0.1;
  expect_peaks(config, "adapters and a reference");
}

TEST(DryRollouts, AreMoreWithHeldWeightsAndOfTheDryRun) {
  test::TemporaryPath folder;
  Config config = on_grid(writing_config(folder), {.z = 2});
  const auto bytes_of = [&](bool holds) {
    config.rl.hold_weights = holds;
    const PreparedRun whole = prepared(stored(config));
    const DryRun run = dry_run(whole, 1);
    EXPECT_EQ(run.fault, "");
    EXPECT_EQ(run.rollouts_at_once, 24);
    EXPECT_EQ(run.rollout_bytes,
              dry_rollouts(whole, 1, {.prompt_tokens = kPrompt}).memory.peak_bytes);
    EXPECT_THAT(to_text(run, whole), testing::HasSubstr("while 24 answers at a time"));
    return run.rollout_bytes;
  };
  EXPECT_GT(bytes_of(true), bytes_of(false));
}
