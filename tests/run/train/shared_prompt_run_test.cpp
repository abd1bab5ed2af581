// Pairs whose prompt is computed once have the losses of those whose answers have one each.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/prepared_run.h"

#include "tests/support/dry_peak.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kLength = 256;

/// Prompts of 20 to 70 bytes with answers of 1 to 23, of which pairs and labelled ones are made.
void write_answers(const std::string& pairs, const std::string& labelled) {
  std::ofstream of_pairs(pairs), of_labels(labelled);
  for (int i = 0; i < 24; ++i) {
    const std::string prompt =
                          std::string(17 + 13 * i % 50, static_cast<char>('c' + i % 7)) + " : ",
                      chosen = std::string(1 + 5 * i % 23, 'a'),
                      rejected = "b" + std::string(7 * i % 19, 'a');
    of_pairs << R"({"prompt": ")" << prompt << R"(", "chosen": ")" << chosen
             << R"(", "rejected": ")" << rejected << "\"}\n";
    of_labels << R"({"prompt": ")" << prompt << R"(", "completion": ")"
              << (i % 2 == 0 ? chosen : rejected) << R"(", "label": )" << 1 - i % 2 << "}\n";
  }
}

/// tiny_config trained on such pairs, from the model that a seed gives, changed by `change`.
Config answers_config(const test::TemporaryPath& folder,
                      const std::function<void(Config&)>& change) {
  Config config = tiny_config(folder / "run");
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  config.output.overwrite = true;
  config.training.seq_len = kLength;
  config.training.global_batch = 4;
  config.preference = {.loss = PreferenceLoss::dpo, .beta = 0.5};
  config.optimizer.lr = 3e-3;
  change(config);
  const std::string model = folder / "model";
  ModelConfig whole = config.model;
  whole.lora = {};
  test::save_checkpoint(model, resolved(whole, config.model.vocab, kLength), {});
  config.model.path = model;
  write_answers(folder / "pairs.jsonl", folder / "labelled.jsonl");
  config.data = {.jsonl = {reads_labels(config.preference.loss) ? folder / "labelled.jsonl"
                                                                : folder / "pairs.jsonl"}};
  return config;
}

void keep(Config&) {}

Config with_shared_prompts(Config config) {
  config.preference.shared_prompt = true;
  return config;
}

/// Expects the losses, norms and figures of `want` in the lines of a run, within f32's rounding.
void expect_lines(const Config& config, const std::vector<nlohmann::json>& want,
                  const std::string& name, double factor = 1) {
  train_on_threads(stored(config));
  const auto got = metrics_of(config);
  ASSERT_EQ(got.size(), want.size()) << name;
  for (std::size_t step = 0; step < got.size(); ++step)
    for (const auto& [key, tolerance] :
         {std::pair("loss", 2e-6), std::pair("grad_norm", 2e-5), std::pair("logps/chosen", 2e-6),
          std::pair("logps/rejected", 2e-6), std::pair("rewards/margins", 2e-5)}) {
      const double value = want[step].at(key);
      EXPECT_NEAR(got[step].at(key).get<double>(), value,
                  factor * tolerance * (1 + std::abs(value)))
          << name << ", " << key << " of step " << step + 1;
    }
}

std::vector<nlohmann::json> lines_of(const Config& config) {
  train_on_threads(stored(config));
  return metrics_of(config);
}

}  // namespace

TEST(SharedPrompt, HasTheLossesOfPromptsWithEachAnswerOnEveryGrid) {
  test::TemporaryPath folder;
  const Config config = answers_config(folder, keep);
  const auto want = lines_of(config);
  EXPECT_LT(column(want, "loss").back(), 0.6) << "it learns, so that ten steps say something";
  Config shared = with_shared_prompts(config);
  expect_lines(shared, want, "one rank");
  for (const GridShape grid : {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 2, 1, 1}, GridShape{1, 2, 2, 1}})
    expect_lines(on_grid(shared, grid), want, to_string(grid));
  expect_lines(without_overlap(on_grid(shared, {2, 1, 2, 1})), want, "without overlap");
  shared.training.micro_batch = 4;
  shared.parallelism.chunks = 2;
  expect_lines(shared, want, "chunks");
  for (const RecomputeMode mode :
       {RecomputeMode::light, RecomputeMode::full, RecomputeMode::values}) {
    shared.activation_checkpoint.mode = mode;
    expect_lines(on_grid(shared, {.y = 2}), want, "recomputation");
  }
  shared.training.seq_len = 128;  // answers with prompts of their own need more
  expect_lines(shared, want, "shorter sequences");
  Config separate = config;
  separate.training.seq_len = 128;
  EXPECT_THAT(failure_of(stored(separate)), HasSubstr("more than training.seq_len = 128"));
}

TEST(SharedPrompt, HasTheLossesOfPromptsWithEachAnswerInEveryKindOfModel) {
  const std::vector<std::pair<std::string, std::function<void(Config&)>>> kinds = {
      {"gpt", [](Config& c) { c.model.family = ModelFamily::gpt, c.model.kv_heads = 0; }},
      {"window", [](Config& c) { c.model.window = 24; }},
      {"chunked", [](Config& c) { c.model.window = 24, c.model.window_chunks = true; }},
      {"experts",
       [](Config& c) {
         c.model.experts = 4;
         c.model.experts_per_token = 2;
         c.model.expert_ffn = 24;
       }},
      {"few keys", [](Config& c) { c.model.kv_heads = 2; }},
      {"adapters", [](Config& c) { c.model.lora.rank = 4; }},
      {"sinks", [](Config& c) { c.model.sinks = true; }},
  };
  for (const auto& [name, change] : kinds) {
    test::TemporaryPath folder;
    const Config config = answers_config(folder, change);
    const auto want = lines_of(config);
    for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}})
      expect_lines(on_grid(with_shared_prompts(config), grid), want, name + ' ' + to_string(grid));
  }
}

TEST(SharedPrompt, HasTheLossesOfPromptsWithEachAnswerForEveryKindOfLoss) {
  for (const PreferenceLoss loss :
       {PreferenceLoss::orpo, PreferenceLoss::simpo, PreferenceLoss::kto, PreferenceLoss::aot}) {
    test::TemporaryPath folder;
    const Config config = answers_config(folder, [&](Config& c) { c.preference.loss = loss; });
    expect_lines(on_grid(with_shared_prompts(config), {.z = 2}), lines_of(config),
                 std::string(kPreferenceLosses[static_cast<std::size_t>(loss)]));
  }
}

TEST(SharedPrompt, ResumesToTheBit) {
  test::TemporaryPath folder;
  Config config = with_shared_prompts(answers_config(folder, keep));
  const auto want = lines_of(config);
  config.checkpoint.resume = config.output.dir + "/checkpoints/step-5";
  train_on_threads(stored(config));
  for (const char* key : {"loss", "grad_norm", "rewards/margins"})
    EXPECT_EQ(column(metrics_of(config), key), column(want, key)) << key;
}

TEST(SharedPrompt, TakesTheMemoryThatADryStepPredicts) {
  test::TemporaryPath folder;
  Config config = with_shared_prompts(answers_config(folder, keep));
  config.training.micro_batch = 2;
  for (const GridShape grid : {GridShape{}, GridShape{.y = 2, .z = 2}})
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
      config.activation_checkpoint.mode = mode;
      expect_dry_peak(prepared(stored(on_grid(config, grid))));
    }
}

TEST(SharedPrompt, IsRefusedWhereASecondAnswerWouldSeeTheFirst) {
  test::TemporaryPath folder;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    const Config config = with_shared_prompts(answers_config(folder, change));
    try {
      prepared(stored(config));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(keep), "");
  EXPECT_THAT(refusal([](Config& c) { c = on_grid(c, {.z = 2, .context = 2}); }),
              HasSubstr("[preference] shared_prompt: [parallelism] context"));
  EXPECT_THAT(refusal([](Config& c) {
                c.model.delta_layers = {0};
                c.model.delta = {
                    .key_heads = 2, .value_heads = 2, .key_dim = 8, .value_dim = 8, .taps = 3};
              }),
              HasSubstr("[preference] shared_prompt: [model] delta_layers"));
}
