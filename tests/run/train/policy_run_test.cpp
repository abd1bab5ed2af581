// Training on answers with rewards; tests/run/config/policy_loss_test.cpp has the losses of given
// log-probabilities.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"

#include "tests/support/dry_peak.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// Answers of 1 to 6 times `longer` letters to prompts, four each. Words of a have larger rewards.
void write_answers(const std::string& file, int count, int longer = 1) {
  std::ofstream lines(file);
  for (int i = 0; i < count; ++i) {
    const int letters = longer * (1 + i * 5 % 6);
    lines << R"({"prompt": "count )" << i / 4 << R"(: ", "completion_ids": [)";
    for (int t = 0; t < letters; ++t) lines << (t > 0 ? ", " : "") << 97 + (i + t) % 3;
    lines << R"(], "mask": [)";
    for (int t = 0; t < letters; ++t) lines << (t > 0 ? ", " : "") << (t == 2 ? 0 : 1);
    lines << R"(], "rewards": {"right": )" << i % 3 << R"(, "short": )"
          << (i % 5 == 0 ? "null" : std::to_string(0.1 * letters)) << R"(}, "truncated": )"
          << (i % 7 == 3 ? "true" : "false") << "}\n";
  }
}

/// A run on 32 answers, eight a step, from the model that a seed gives; its reference is another.
Config policy_config(const test::TemporaryPath& folder, const std::string& name, PolicyLoss loss) {
  Config config = tiny_config(folder / name);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  if (!std::filesystem::exists(folder / "answers.jsonl")) {
    for (const char* model : {"model", "reference"}) {
      config.model.init_std *= 1.5;
      test::save_checkpoint(folder / model, resolved(config.model, config.model.vocab, 48), {});
    }
    write_answers(folder / "answers.jsonl", 32);
  }
  config.model.init_std = ModelConfig().init_std;
  config.model.path = folder / "model";
  config.training.seq_len = 48;
  config.training.global_batch = 8;
  config.training.steps = 6;
  config.data = {.jsonl = {folder / "answers.jsonl"}};
  config.rl = {.loss = loss, .group = 4, .max_tokens = 6, .reference = folder / "reference"};
  return config;
}

/// Two passes over generations of two steps, held to the reference.
Config long_generations(const test::TemporaryPath& folder, const std::string& name,
                        PolicyLoss loss) {
  Config config = policy_config(folder, name, loss);
  config.rl.iterations = config.rl.steps_per_generation = 2;
  config.rl.kl = 0.1;
  config.rl.temperature = 0.8;
  config.checkpoint.every = 1;
  config.checkpoint.keep = 0;
  return config;
}

std::vector<double> losses_of_answers(const Config& config) { return first_losses(stored(config)); }

}  // namespace

TEST(PolicyRun, BeginsWithoutADivergenceAndLearnsTheRewards) {
  test::TemporaryPath folder;
  Config config = policy_config(folder, "run", PolicyLoss::grpo);
  config.rl.reference = "";
  config.rl.kl = 0.01;
  config.rl.iterations = 2;
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(column(lines, "kl").front(), 0) << "the model is its own reference";
  EXPECT_GT(column(lines, "kl")[2], 0);
  EXPECT_EQ(column(lines, "clip_ratio/region_mean").front(), 0) << "nothing was updated yet";
  EXPECT_LT(column(lines, "loss")[1], column(lines, "loss")[0]) << "the same answers again";
  EXPECT_DOUBLE_EQ(column(lines, "rewards/right/mean").front(), 7.0 / 8);
  EXPECT_EQ(column(lines, "completions/max_length").front(), 5) << "one token does not count";
}

TEST(PolicyRun, HasTheLossesOfOneRankOnEveryGridAndForEveryMicroBatch) {
  test::TemporaryPath folder;
  for (const PolicyLoss loss : {PolicyLoss::grpo, PolicyLoss::dapo, PolicyLoss::rloo}) {
    Config config = long_generations(folder, "run", loss);
    config.rl.mask_truncated = loss != PolicyLoss::grpo;
    const std::vector<double> one = losses_of_answers(config);
    for (const GridShape grid : {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                                 GridShape{.data = 3}, GridShape{2, 1, 2, 1}}) {
      const std::vector<double> got = losses_of_answers(on_grid(config, grid));
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_NEAR(got[i], one[i], 2e-5 * (0.1 + std::abs(one[i]))) << i << to_string(grid);
    }
    config.training.micro_batch = 4;
    config.parallelism.chunks = 2;
    config.activation_checkpoint.mode = RecomputeMode::full;
    const std::vector<double> got = losses_of_answers(config);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(got[i], one[i], 2e-5 * (0.1 + std::abs(one[i]))) << i;
  }
}

TEST(PolicyRun, KeepsTheTokensOfTheLargestEntropiesAndRaisesThemOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = long_generations(folder, "run", PolicyLoss::dapo);
  config.rl.entropy_coef = 0.05;
  const std::vector<double> all = losses_of_answers(config);
  config.rl.top_entropy_quantile = 0.4;
  const std::vector<double> one = losses_of_answers(config);
  EXPECT_GT(largest_difference(one, all), 1e-3);
  for (const GridShape grid :
       {GridShape{.x = 2}, GridShape{.data = 3}, GridShape{2, 2, 1, 1}, GridShape{2, 1, 2, 1}}) {
    const std::vector<double> got = losses_of_answers(on_grid(config, grid));
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(got[i], one[i], 2e-5 * (0.1 + std::abs(one[i]))) << i << to_string(grid);
  }
  expect_dry_peak(prepared(stored(on_grid(config, {.x = 2, .z = 2}))));

  Config alone = policy_config(folder, "alone", PolicyLoss::dapo);
  alone.rl.reward_weights = {0, 0};  // so that nothing but the entropy is left
  alone.rl.entropy_coef = 0.5;
  train_on_threads(stored(alone));
  const std::vector<double> entropies = column(metrics_of(alone), "entropy"),
                            losses = column(metrics_of(alone), "loss");
  EXPECT_GT(entropies.back(), entropies.front() + 1e-3);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], -0.5 * entropies[i], 1e-6) << i;
}

TEST(PolicyRun, HasTheLossesOfOneRankWhereRanksShareTheSequences) {
  test::TemporaryPath folder;
  Config config = long_generations(folder, "run", PolicyLoss::grpo);
  config.rl.entropy_coef = 0.02;
  config.training.seq_len = 256;
  config.rl.max_tokens = 200;
  const std::string path = std::exchange(config.model.path, "");
  for (const char* key : {"model", "reference"}) {
    config.model.init_std *= 1.5;
    test::save_checkpoint(folder / key, resolved(config.model, config.model.vocab, 256), {});
  }
  config.model.init_std = ModelConfig().init_std;
  config.model.path = path;
  write_answers(folder / "answers.jsonl", 32, 30);
  const std::vector<double> one = losses_of_answers(config);
  for (const GridShape grid :
       {GridShape{.z = 2, .context = 2}, GridShape{.x = 2, .z = 4, .context = 2}}) {
    const std::vector<double> got = losses_of_answers(on_grid(config, grid));
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(got[i], one[i], 2e-5 * (0.1 + std::abs(one[i]))) << i << with_factors(grid);
  }
}

TEST(PolicyRun, ResumesWithinAGenerationToTheBit) {
  test::TemporaryPath folder;
  for (const PolicyLoss loss : {PolicyLoss::dapo, PolicyLoss::rloo}) {
    const std::string name = std::string(kPolicyLosses[static_cast<std::size_t>(loss)]);
    const Config whole = long_generations(folder, "whole" + name, loss);
    train_on_threads(stored(on_grid(whole, {.z = 2})));
    for (const int done : {3, 4, 5}) {
      Config rest = long_generations(folder, concat("rest", done, name), loss);
      rest.checkpoint.resume = concat(whole.output.dir, "/checkpoints/step-", done);
      train_on_threads(stored(on_grid(rest, {.z = 2})));
      auto want = metrics_of(whole);
      want.erase(want.begin(), want.begin() + done);
      for (const char* key : {"loss", "grad_norm", "reward", "kl", "clip_ratio/region_mean"})
        EXPECT_EQ(column(metrics_of(rest), key), column(want, key)) << key << done;
    }
  }
}

TEST(PolicyRun, RefusesToGoOnWithAnotherGeneration) {
  test::TemporaryPath folder;
  const Config whole = long_generations(folder, "whole", PolicyLoss::dapo);
  train_on_threads(stored(whole));
  Config rest = long_generations(folder, "rest", PolicyLoss::dapo);
  rest.rl.steps_per_generation = 1;
  rest.checkpoint.resume = whole.output.dir + "/checkpoints/step-1";
  EXPECT_THAT([&] { train_on_threads(stored(rest)); },
              testing::ThrowsMessage<UsageError>(HasSubstr("rl.steps_per_generation")));
}

TEST(PolicyRun, OfAdaptersHasTheModelWithoutThemAsItsReference) {
  test::TemporaryPath folder;
  Config config = policy_config(folder, "run", PolicyLoss::grpo);
  config.rl.reference = "";
  config.rl.kl = 0.1;
  config.model.lora.rank = 4;
  train_on_threads(stored(config));
  EXPECT_EQ(column(metrics_of(config), "kl").front(), 0) << "adapters begin with zeros";
  const std::vector<double> one = losses_of_answers(config);
  EXPECT_LE(largest_difference(losses_of_answers(on_grid(config, {.z = 2})), one), 2e-5);
}

TEST(PolicyRun, TakesTheMemoryThatADryStepPredicts) {
  test::TemporaryPath folder;
  Config config = on_grid(long_generations(folder, "run", PolicyLoss::dapo), {.y = 2, .z = 2});
  config.training.micro_batch = 2;
  expect_dry_peak(prepared(stored(config)));
}

TEST(PolicyRun, RefusesWhatItDoesNotDoByItsKey) {
  test::TemporaryPath folder;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config config = policy_config(folder, "run", PolicyLoss::grpo);
    change(config);
    try {
      prepared(stored(config));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](Config&) {}), "");
  EXPECT_THAT(refusal([](Config& c) { c.training.global_batch = 6; }),
              HasSubstr("no whole groups of [rl] group = 4"));
  EXPECT_THAT(refusal([](Config& c) { c.preference.loss = PreferenceLoss::dpo; }),
              HasSubstr("[preference] loss"));
  EXPECT_THAT(refusal([](Config& c) { c.training.batch_ramp = "4 4 16"; }),
              HasSubstr("batch_ramp"));
  EXPECT_THAT(refusal([](Config& c) { c.training.z_loss = 1e-4; }), HasSubstr("z_loss"));
  EXPECT_THAT(refusal([](Config& c) {
                c.model.lora.rank = 4;
                c.model.lora.dropout = 0.1;
              }),
              HasSubstr("[lora] dropout"));
}
