// Trainings on answers that the run writes itself.
#include "axonn/use/rewards/rollout_sampler.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/trainer.h"
#include "axonn/use/rewards/reward_function.h"

#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// The reward is the number of letters a to m in the answer.
constexpr const char* kCounts =
    "while read line; do a=${line##*completion_ids}; a=${a%%]*}; "
    "echo $a | tr -cs 0-9 '\\n' | awk '$1 >= 97 && $1 < 110 {n++} END {print n+0}'; done";

Config prompt_config(const test::TemporaryPath& folder, const std::string& name) {
  Config config = tiny_config(folder / name);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  if (!std::filesystem::exists(folder / "prompts.jsonl")) {
    test::save_checkpoint(folder / "model", resolved(config.model, config.model.vocab, 48), {});
    std::ofstream lines(folder / "prompts.jsonl");
    for (int i = 0; i < 6; ++i)
      lines << R"({"prompt": "count )" << i << R"(: ", "answer": )" << i << "}\n";
  }
  config.model.path = folder / "model";
  config.training.seq_len = 24;
  config.training.global_batch = 8;
  config.training.steps = 6;
  config.data = {.jsonl = {folder / "prompts.jsonl"}, .eod = 101};
  config.rl = {.loss = PolicyLoss::grpo,
               .group = 4,
               .max_tokens = 8,
               .rewards = {"number"},
               .reward_program = kCounts};
  return config;
}

void train_with_sampler(const Config& config) {
  train_on_threads(stored(config), {.make_sampler = make_rollout_sampler});
}

std::vector<nlohmann::json> answers_of(const Config& config, int step) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(concat(config.output.dir, "/rollouts/step-00000", step, ".jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

TEST(PromptRun, WritesAnswersWhoseProbabilitiesAreThoseOfItsPass) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.temperature = 0.7;
  train_with_sampler(config);
  const auto lines = metrics_of(config);
  ASSERT_EQ(lines.size(), 6);
  for (const double difference : column(lines, "sampling/sampling_logp_difference/max"))
    EXPECT_EQ(difference, 0);
  for (const double clipped : column(lines, "clip_ratio/region_mean")) EXPECT_EQ(clipped, 0);
  const auto answers = answers_of(config, 1);
  ASSERT_EQ(answers.size(), 8);
  double rewards = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& one = answers[i];
    EXPECT_EQ(one["prompt"], answers[i / 4 * 4]["prompt"]) << "four answers to each";
    EXPECT_LE(one["completion_ids"].size(), 8);
    EXPECT_EQ(one["completion_ids"].size(), one["logprobs"].size());
    EXPECT_EQ(one["truncated"], one["completion_ids"].back() != 101);
    double letters = 0;
    for (const int id : one["completion_ids"]) letters += id >= 97 && id < 110 ? 1 : 0;
    EXPECT_EQ(one["rewards"]["reward"], letters);
    rewards += letters + one["rewards"]["number"].get<double>();
  }
  EXPECT_DOUBLE_EQ(column(lines, "reward").front(), rewards / 8);
}

/// Latent attention, whose cache has latents where probabilities need not be training's.
void set_latents(ModelConfig& model) {
  model.kv_heads = model.head_dim = 0;
  model.kv_lora_rank = model.q_lora_rank = 24;
  model.qk_nope_head_dim = 6;
  model.qk_rope_head_dim = 12;
  model.v_head_dim = 8;
}

TEST(PromptRun, ComputesAnswersAsItTrainsOnThemOnEveryGrid) {
  test::TemporaryPath folder;
  std::ofstream lines(folder / "long.jsonl");  // several blocks of attention, some in one pass
  for (const int length : {3, 64, 70, 150, 65, 9})
    lines << R"({"prompt": ")" << std::string(length, 'x') << R"(", "answer": 1})" << '\n';
  lines.close();
  const auto config_of = [&](const std::string& kind, const GridShape& grid, DType type) {
    Config config = prompt_config(folder, "run");
    config.training.seq_len = 192;
    config.model.window = 40;
    config.model.full_layers = {0};
    if (kind == "latents") set_latents(config.model);
    config.model.path = "";
    if (!std::filesystem::exists(folder / kind))
      test::save_checkpoint(folder / kind, resolved(config.model, config.model.vocab, 192), {});
    config.model.path = folder / kind;
    config.data.jsonl = {folder / "long.jsonl"};
    config.rl.max_tokens = 20;
    config.rl.temperature = 1.3;
    config.training.dtype = type;
    config.training.steps = 2;
    config.output.overwrite = true;
    return on_grid(config, grid);
  };
  const auto differences = [&](const Config& config) {
    train_with_sampler(config);
    return column(metrics_of(config), "sampling/sampling_logp_difference/max");
  };
  for (const DType type : {DType::f32, DType::bf16})
    for (const GridShape& grid : std::vector<GridShape>{
             {}, {.x = 2, .y = 2}, {.y = 4}, {.x = 3, .z = 2}, {.z = 2, .data = 2}})
      EXPECT_THAT(differences(config_of("windows", grid, type)), testing::Each(0))
          << to_string(grid) << ' ' << name_of(type);
  for (const GridShape& grid : std::vector<GridShape>{{}, {.x = 2, .y = 2}, {.x = 3, .z = 2}})
    EXPECT_THAT(differences(config_of("latents", grid, DType::bf16)), testing::Each(0))
        << to_string(grid);
  for (const char* const kind : {"windows", "latents"}) {
    Config plain = config_of(kind, {}, DType::f32);
    plain.rl.batch_invariant = false;
    EXPECT_THAT(differences(plain), testing::Each(AllOf(testing::Gt(0), testing::Lt(1e-4))));
  }
}

TEST(PromptRun, WritesWholeAnswersWhereRanksShareTheSequencesOfTraining) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.training.seq_len = 256;
  config.model.path = "";
  test::save_checkpoint(folder / "longer", resolved(config.model, config.model.vocab, 256), {});
  config.model.path = folder / "longer";
  config.rl.max_tokens = 150;
  config.rl.temperature = 0.7;
  config.training.steps = 2;
  for (const GridShape grid :
       {GridShape{.z = 2, .context = 2}, GridShape{.x = 3, .z = 4, .context = 2}}) {
    config = on_grid(config, grid);
    config.output.overwrite = true;
    train_with_sampler(config);
    EXPECT_THAT(column(metrics_of(config), "sampling/sampling_logp_difference/max"),
                testing::Each(0))
        << with_factors(grid);
    EXPECT_GT(column(metrics_of(config), "completions/max_length").front(), 128);
    EXPECT_EQ(answers_of(config, 1).size(), 8);
  }
}

TEST(PromptRun, EndsIfATokenHadAnotherProbabilityWhenItWasWritten) {
  struct Off final : RolloutSampler {
    explicit Off(std::unique_ptr<RolloutSampler> of) : inner(std::move(of)) {}
    SamplingCost write(std::int64_t g, RolloutFile& to) override {
      SamplingCost cost = inner->write(g, to);
      if (g == 1) to.answers[5].sampler[0] += 1e-6;
      return cost;
    }
    std::unique_ptr<RolloutSampler> inner;
  };
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  const TrainOptions options{.make_sampler = [](LoadedModel& model, const auto& corpus) {
    return std::make_unique<Off>(make_rollout_sampler(model, corpus));
  }};
  EXPECT_THAT([&] { train_on_threads(stored(config), options); },
              ThrowsMessage<Error>(AllOf(HasSubstr("rl.batch_invariant: a token of answer 6"),
                                         HasSubstr("set rl.batch_invariant = false"))));
  EXPECT_EQ(metrics_of(config).size(), 1) << "the first generation is trained on";
  config.output.overwrite = true;
  config.rl.batch_invariant = false;
  train_on_threads(stored(config), options);
  EXPECT_EQ(metrics_of(config).size(), 6);
}

TEST(PromptRun, IsTheSameTwiceAndResumesWithinAGenerationToTheBit) {
  test::TemporaryPath folder;
  const auto config_of = [&](const std::string& name) {
    Config config = prompt_config(folder, name);
    config.rl.iterations = 3;
    config.checkpoint.every = 1;
    config.checkpoint.keep = 0;
    return on_grid(config, {.x = 2, .z = 2});
  };
  const Config whole = config_of("whole");
  train_with_sampler(whole);
  for (const int done : {0, 2, 3, 5}) {
    Config rest = config_of(concat("rest", done));
    if (done > 0) rest.checkpoint.resume = concat(whole.output.dir, "/checkpoints/step-", done);
    train_with_sampler(rest);
    auto want = metrics_of(whole);
    want.erase(want.begin(), want.begin() + done);
    for (const char* key : {"loss", "grad_norm", "reward", "completions/mean_length"})
      EXPECT_EQ(column(metrics_of(rest), key), column(want, key)) << key << done;
    if (done > 3) continue;
    EXPECT_EQ(answers_of(rest, 4), answers_of(whole, 4));
  }
}

/// 0 for all answers to half of the prompts; for the others their number of letters.
constexpr const char* kEvenForHalf =
    "while read line; do case $line in *'\"answer\":'[024]*) echo 0;; *) "
    "a=${line##*completion_ids}; "
    "a=${a%%]*}; echo $a | tr -cs 0-9 '\\n' | awk '$1 >= 97 && $1 < 110 {n++} END {print n+0}';; "
    "esac; done";

TEST(PromptRun, WritesAnswersToFurtherPromptsInPlaceOfThoseWithEqualRewards) {
  test::TemporaryPath folder;
  const auto config_of = [&](const std::string& name, std::int64_t attempts) {
    Config config = prompt_config(folder, name);
    config.rl.rewards = {};
    config.rl.reward_program = kEvenForHalf;
    config.rl.sampling_attempts = attempts;
    return on_grid(config, {.x = 2, .data = 2});
  };
  const Config all = config_of("all", 1), some = config_of("some", 20),
               twice = config_of("twice", 20);
  for (const Config* config : {&all, &some, &twice}) train_with_sampler(*config);
  const auto mean = [&](const Config& config, const char* name) {
    const std::vector<double> values = column(metrics_of(config), name);
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  EXPECT_GE(mean(all, "frac_reward_zero_std"), 0.5);
  EXPECT_EQ(mean(some, "frac_reward_zero_std"), 0);
  EXPECT_GE(mean(some, "sampling/attempts"), 1.5);
  EXPECT_GE(mean(some, "sampling/dropped_groups"), 0.5);
  for (int step = 1; step <= 6; ++step) {
    const auto answers = answers_of(some, step);
    ASSERT_EQ(answers.size(), 8);
    for (const auto& one : answers)
      EXPECT_THAT(one["prompt"].get<std::string>(), testing::ContainsRegex("count [135]"));
    EXPECT_EQ(answers, answers_of(twice, step));
  }
}

TEST(PromptRun, PunishesAnswersThatAreAlmostTooLong) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.rewards = {"overlong"};
  config.rl.overlong_buffer = 4;
  train_with_sampler(config);
  for (int step = 1; step <= 6; ++step)
    for (const auto& one : answers_of(config, step)) {
      const auto tokens = static_cast<double>(one["completion_ids"].size());
      EXPECT_EQ(one["rewards"]["overlong"], -std::max(0.0, (tokens - 4) / 4));
    }
}

namespace {

/// Learns from a teacher on answers that the run writes.
Config taught_config(const test::TemporaryPath& folder, const std::string& name) {
  Config config = prompt_config(folder, name);
  if (!std::filesystem::exists(folder / "teacher")) {
    ModelConfig teacher = config.model;
    teacher.layers = 2;
    teacher.init_std = 0.3;
    teacher.path = "";
    test::save_checkpoint(folder / "teacher", resolved(teacher, config.model.vocab, 48), {});
  }
  config.distill = {.teacher = folder / "teacher", .beta = 1};
  config.rl = {.loss = PolicyLoss::distill, .group = 1, .max_tokens = 8};
  return config;
}

}  // namespace

TEST(PromptRun, LearnsFromATeacherOnItsOwnAnswers) {
  test::TemporaryPath folder;
  Config config = taught_config(folder, "run");
  config.training.steps = 30;
  config.optimizer.lr = 3e-3;
  train_with_sampler(config);
  const auto lines = metrics_of(config);
  EXPECT_LT(column(lines, "loss").back(), 0.9 * column(lines, "loss").front());
  EXPECT_GT(column(lines, "completions/mean_length").front(), 0);
  EXPECT_FALSE(lines.front().contains("reward"));
  EXPECT_LT(column(lines, "cross_entropy").front(), 2 * std::log(config.model.vocab))
      << "of a token";
  const auto answers = answers_of(config, 1);
  ASSERT_EQ(answers.size(), 8);

  // The same answers, recorded: the divergence of their tokens is that of the first step.
  for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 2}, GridShape{.y = 2}}) {
    Config recorded = on_grid(taught_config(folder, "recorded"), grid);
    recorded.data.jsonl = {config.output.dir + "/rollouts/step-000001.jsonl"};
    recorded.training.steps = 1;
    recorded.lr_scheduler.warmup_steps = 0;
    recorded.output.overwrite = true;
    train_with_sampler(recorded);
    EXPECT_NEAR(column(metrics_of(recorded), "loss").front(), column(lines, "loss").front(), 2e-5)
        << to_string(grid);
  }
}

TEST(PromptRun, LearnsFromATeacherToTheBitAfterAResume) {
  test::TemporaryPath folder;
  const auto config_of = [&](const std::string& name) {
    Config config = taught_config(folder, name);
    config.rl.iterations = 2;
    config.rl.rewards = {"number"};  // which is only reported
    config.checkpoint.every = 1;
    config.checkpoint.keep = 0;
    return on_grid(config, {.x = 2, .z = 2});
  };
  const Config whole = config_of("whole");
  train_with_sampler(whole);
  EXPECT_TRUE(metrics_of(whole).front().contains("rewards/number/mean"));
  for (const int done : {1, 2}) {
    Config rest = config_of(concat("rest", done));
    rest.checkpoint.resume = concat(whole.output.dir, "/checkpoints/step-", done);
    train_with_sampler(rest);
    auto want = metrics_of(whole);
    want.erase(want.begin(), want.begin() + done);
    for (const char* key : {"loss", "grad_norm", "completions/mean_length"})
      EXPECT_EQ(column(metrics_of(rest), key), column(want, key)) << key << done;
  }
}

/// taught_config on lines that have answers, of which half of the generations are.
Config mixed_config(const test::TemporaryPath& folder, const std::string& name) {
  Config config = taught_config(folder, name);
  std::ofstream lines(folder / "mixed.jsonl");
  for (int i = 0; i < 6; ++i)
    lines << R"({"prompt": "count )" << i << R"(: ", "completion": ")" << std::string(3 + i, 'x')
          << "e\"}\n";  // data.eod is e

  config.data.jsonl = {folder / "mixed.jsonl"};
  config.distill.lmbda = 0.5;
  config.training.steps = 8;
  config.checkpoint.every = 1;
  config.checkpoint.keep = 0;
  return config;
}

TEST(PromptRun, LearnsFromATeacherOnGivenAnswersInSomeGenerations) {
  test::TemporaryPath folder;
  const Config config = mixed_config(folder, "run");
  train_with_sampler(config);
  const Random random(static_cast<std::uint64_t>(config.training.seed), "distill.lmbda");
  int given = 0;
  for (int step = 1; step <= 8; ++step) {
    const bool own = random.uniform(step - 1) < 0.5;
    given += own ? 0 : 1;
    for (const auto& answer : answers_of(config, step)) {
      EXPECT_EQ(answer.contains("logprobs"), own) << "of a sampler, in step " << step;
      if (own) continue;
      const std::vector<int> ids = answer["completion_ids"];
      ASSERT_GE(ids.size(), 4);
      EXPECT_EQ(ids.back(), 101) << "the token that ends an answer";
      EXPECT_EQ(std::ranges::count(ids, 'x'), std::ssize(ids) - 1);
      EXPECT_FALSE(answer["truncated"]);
    }
  }
  EXPECT_THAT(given, AllOf(testing::Gt(0), testing::Lt(8)));

  for (const int done : {2, 5}) {
    Config rest = mixed_config(folder, concat("rest", done));
    rest.checkpoint.resume = concat(config.output.dir, "/checkpoints/step-", done);
    train_with_sampler(rest);
    auto want = metrics_of(config);
    want.erase(want.begin(), want.begin() + done);
    for (const char* key : {"loss", "grad_norm", "completions/mean_length"})
      EXPECT_EQ(column(metrics_of(rest), key), column(want, key)) << key << done;
  }

  // Without answers of its own it learns what a run on those of the file does.
  Config all = mixed_config(folder, "all");
  all.distill.lmbda = 0;
  all.training.steps = 1;
  all.lr_scheduler.warmup_steps = 0;
  train_with_sampler(all);
  Config recorded = taught_config(folder, "recorded");
  recorded.data.jsonl = {all.output.dir + "/rollouts/step-000001.jsonl"};
  recorded.training.steps = 1;
  recorded.lr_scheduler.warmup_steps = 0;
  train_with_sampler(recorded);
  EXPECT_EQ(column(metrics_of(recorded), "loss"), column(metrics_of(all), "loss"));
}

TEST(PromptRun, RefusesToMixAnswersThatItDoesNotHave) {
  test::TemporaryPath folder;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config config = mixed_config(folder, "run");
    change(config);
    try {
      train_with_sampler(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal([&](Config& c) { c.data.jsonl = {folder / "prompts.jsonl"}; }),
              HasSubstr("prompts.jsonl:1: there is no \"completion_ids\""));
  EXPECT_THAT(refusal([](Config& c) { c.distill.lmbda = 1.5; }), HasSubstr("[distill] lmbda"));
  EXPECT_THAT(refusal([](Config& c) { c.rl.loss = PolicyLoss::none; }),
              HasSubstr("[distill] lmbda = 0.5 mixes answers"));
  EXPECT_THAT(refusal([](Config& c) { c.training.seq_len = 16, c.rl.max_tokens = 4; }),
              HasSubstr("more than training.seq_len = 16"));
}

TEST(PromptRun, TakesRewardsOfAFunction) {
  register_reward("short words", [](const JudgedAnswer& answer) {
    EXPECT_THAT(std::string(answer.prompt_line), HasSubstr("count"));
    EXPECT_EQ(answer.truncated, answer.tokens.back() != 101);
    return -static_cast<double>(answer.tokens.size());
  });
  EXPECT_THROW(register_reward("exact", [](const JudgedAnswer&) { return 0.0; }), Error);
  EXPECT_THROW(register_reward("none", {}), Error);
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.rewards = {"short words", "number"};
  config.rl.reward_program = "";
  train_with_sampler(config);
  for (const auto& one : answers_of(config, 1))
    EXPECT_EQ(one["rewards"]["short words"], -static_cast<double>(one["completion_ids"].size()));
  config.rl.rewards = {"long words"};
  config.output.overwrite = true;
  EXPECT_THAT([&] { train_with_sampler(config); },
              ThrowsMessage<UsageError>(HasSubstr("rl.rewards wants one of exact, number")));
}

TEST(PromptRun, TakesEachPromptOnceAnEpoch) {
  test::TemporaryPath folder;
  const Config config = prompt_config(folder, "run");
  train_with_sampler(config);
  for (const int first : {1, 4}) {  // two of six prompts a step
    std::set<std::string> prompts;
    for (int step = first; step < first + 3; ++step)
      for (const auto& one : answers_of(config, step)) prompts.insert(one["prompt"]);
    EXPECT_EQ(prompts.size(), 6);
  }
}

TEST(PromptRun, RemovesTheAnswersOfTheRunThatItReplaces) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  train_with_sampler(config);
  EXPECT_EQ(answers_of(config, 6).size(), 8);
  config.training.steps = 3;
  config.output.overwrite = true;
  train_with_sampler(config);
  EXPECT_EQ(answers_of(config, 3).size(), 8);
  EXPECT_EQ(answers_of(config, 4).size(), 0);
  config.data.jsonl = {config.output.dir + "/rollouts/step-000001.jsonl"};
  EXPECT_THAT([&] { train_with_sampler(config); },
              ThrowsMessage<UsageError>(HasSubstr("step-000001.jsonl")))
      << "it would remove what it reads";
}

TEST(PromptRun, GoesOnWithoutTheRewardsThatItsProgramOwes) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.rewards = {};
  // Says nonsense of every second answer.
  config.rl.reward_program =
      "i=0; while read a; do i=$((i+1)); "
      "[ $((i % 2)) = 0 ] && echo NaN || echo $i; done";
  train_with_sampler(config);
  for (const auto& line : metrics_of(config)) EXPECT_EQ(line["rewards/missing"], 4);
}

TEST(PromptRun, EndsIfNoAnswerHasAReward) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.rewards = {};
  config.rl.reward_program = "while read a; do echo no; done";
  EXPECT_THAT([&] { train_with_sampler(config); },
              ThrowsMessage<Error>(HasSubstr("no answer of the generation has a reward")));
}

TEST(PromptRun, RefusesPromptsWithoutRewardsAndWithoutRoom) {
  test::TemporaryPath folder;
  Config config = prompt_config(folder, "run");
  config.rl.rewards = {};
  config.rl.reward_program = "";
  EXPECT_THAT([&] { train_with_sampler(config); },
              ThrowsMessage<UsageError>(HasSubstr("set rl.rewards or rl.reward_program")));
  config = prompt_config(folder, "run");
  config.rl.max_tokens = 20;
  EXPECT_THAT([&] { train_with_sampler(config); },
              ThrowsMessage<UsageError>(HasSubstr("prompt 1 of data.jsonl has 9 tokens")));
}
