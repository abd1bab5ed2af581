// Samples that a model writes while it is trained: they change no bit of the training, are those
// that the generator writes of the same weights, and a resumed run repeats none.
#include "axonn/use/infer/text_sampler.h"

#include <limits>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/records/sample_file.h"
#include "axonn/use/infer/generator.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

const TrainOptions kSamples{.make_text_sampler = make_text_sampler};

/// tiny_config with three prompts, more than one step of accumulation, and a context for 24 tokens.
Config sampled(const std::string& folder, const GridShape& grid = {}) {
  Config config = on_grid(tiny_config(folder), grid);
  config.training.seq_len = 24;
  config.training.micro_batch = 1;
  config.samples.prompts = {"a", "The town of", "one two"};
  config.samples.every = 3;
  config.samples.tokens = 7;
  return config;
}

std::vector<TextSample> samples_of(const Config& config) {
  std::vector<TextSample> samples;
  std::string text = test::slurp(config.output.dir + "/samples.jsonl");
  while (!text.empty()) {
    samples.push_back(parse_sample(text.substr(0, text.find('\n'))));
    text.erase(0, text.find('\n') + 1);
  }
  return samples;
}

std::vector<std::int64_t> steps_of(const std::vector<TextSample>& samples) {
  std::vector<std::int64_t> steps;
  for (const TextSample& one : samples) steps.push_back(one.step);
  return steps;
}

std::vector<std::string> texts_of(const std::vector<TextSample>& samples) {
  std::vector<std::string> texts;
  for (const TextSample& one : samples) texts.push_back(one.text);
  return texts;
}

std::string refusal_of(const Config& config, const TrainOptions& options = kSamples) {
  try {
    train_on_threads(config, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST(TextSampler, ChangesNoBitOfTheTrainingOnAnyGrid) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 2}, GridShape{2, 1, 2, 2}})
    for (const bool holds : {false, true}) {
      test::TemporaryPath folder;
      Config with = sampled(folder / "with", grid);
      with.training.steps = 7;
      with.training.dtype = holds ? DType::bf16 : DType::f32;
      with.training.eval_every = 4;
      with.training.eval_batches = 1;
      with.samples.hold_weights = holds;
      with.samples.temperature = holds ? 0.7 : 0;
      Config without = with;
      without.output.dir = folder / "without";
      without.samples.prompts.clear();
      train_on_threads(with, kSamples);
      train_on_threads(without);
      EXPECT_THAT(steps_of(samples_of(with)), ElementsAre(3, 3, 3, 6, 6, 6, 7, 7, 7));
      const auto lines = metrics_of(with), want = metrics_of(without);
      EXPECT_EQ(column(lines, "loss"), column(want, "loss")) << to_string(grid);
      EXPECT_EQ(column(lines, "grad_norm"), column(want, "grad_norm")) << to_string(grid);
      EXPECT_EQ(lines.back().at("val_loss"), want.back().at("val_loss")) << to_string(grid);
      for (const char* kind : {"master", "exp_avg", "exp_avg_sq"})
        EXPECT_EQ(weights_of(with.output.dir + "/checkpoints/step-7", kind),
                  weights_of(without.output.dir + "/checkpoints/step-7", kind));
    }
}

TEST(TextSampler, WritesTheSameTextsWhereRanksShareTheSequencesOfTraining) {
  test::TemporaryPath folder;
  Config one = sampled(folder / "one");
  one.training.seq_len = 256;
  one.training.steps = 3;
  Config cut = on_grid(one, GridShape{.z = 2, .context = 2});
  cut.output.dir = folder / "cut";
  train_on_threads(one, kSamples);
  train_on_threads(cut, kSamples);
  EXPECT_EQ(texts_of(samples_of(cut)), texts_of(samples_of(one)));
}

TEST(TextSampler, WritesWhatTheGeneratorWritesOfTheSameWeights) {
  test::TemporaryPath folder;
  Config config = sampled(folder / "run", {2, 1, 2, 1});
  config.samples.temperature = 0.8;
  std::vector<std::string> want;
  TrainOptions options = kSamples;
  options.finished = [&](Training& training) {
    Generator generator(training.model, {.context = 18,  // for the same rounding
                                         .hold_weights = false,
                                         .tokenizer = training.corpora.front()->tokenizer.get()});
    std::vector<std::vector<std::int32_t>> prompts;
    for (const std::string& prompt : config.samples.prompts)
      prompts.push_back(training.corpora.front()->tokenizer->encode_prompt(prompt));
    const auto texts =
        generator.generate(prompts, {.max_tokens = 7, .sampling = {.temperature = 0.8}});
    if (training.model.grid().world().rank() != 0) return;
    for (const Generation& one : texts)
      want.push_back(nlohmann::json::parse(
          nlohmann::json(one.text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  };
  train_on_threads(config, options);
  auto samples = samples_of(config);
  ASSERT_EQ(samples.size(), 12U);
  samples.erase(samples.begin(), samples.end() - 3);
  EXPECT_EQ(texts_of(samples), want);
  EXPECT_EQ(samples[1].prompt, "The town of");
  EXPECT_EQ(samples[1].tokens, 7);
  EXPECT_EQ(samples[1].end, "max_tokens");
  EXPECT_GT(samples[1].time, 1e9);
}

TEST(TextSampler, AResumedRunRepeatsNoSampleAndDropsHalfALine) {
  test::TemporaryPath folder;
  const Config straight = sampled(folder / "straight");
  train_on_threads(straight, kSamples);
  const auto want = samples_of(straight);
  Config config = sampled(folder / "run");
  train_on_threads(config, kSamples);
  std::filesystem::remove_all(config.output.dir + "/checkpoints/step-10");
  const std::string path = config.output.dir + "/samples.jsonl";
  test::spill(path, test::slurp(path) + R"({"step": 11, "prompt": "a", "te)");
  config.checkpoint.resume = "auto";
  train_on_threads(config, kSamples);  // from step 5
  EXPECT_EQ(steps_of(samples_of(config)), steps_of(want));
  EXPECT_EQ(texts_of(samples_of(config)), texts_of(want));
  std::filesystem::remove_all(config.output.dir + "/checkpoints/step-10");
  config.samples.prompts.clear();
  train_on_threads(config, kSamples);
  EXPECT_THAT(steps_of(samples_of(config)), ElementsAre(3, 3, 3)) << "of steps that ran again";
}

TEST(TextSampler, WritesWithEachValidationUnlessToldOtherwise) {
  test::TemporaryPath folder;
  Config config = sampled(folder / "run");
  config.samples.every = 0;
  config.samples.prompts = {"a"};
  config.training.eval_every = 4;
  train_on_threads(config, kSamples);
  EXPECT_THAT(steps_of(samples_of(config)), ElementsAre(4, 8, 10));
  config.output.overwrite = true;
  config.samples.prompts.clear();
  train_on_threads(config, kSamples);
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/samples.jsonl"))
      << "of the run that was replaced";
}

TEST(TextSampler, RefusesWhatCannotBeSampledBeforeTheFirstStepAndNamesTheKey) {
  test::TemporaryPath folder;
  Config config = sampled(folder / "run");
  EXPECT_THAT(refusal_of(config, {}), HasSubstr("[samples] prompts: this command or program"));
  config.samples.prompts = {"fine", std::string(24, 'x')};
  EXPECT_THAT(refusal_of(config), HasSubstr("[samples] prompts: prompt 2 has 24 tokens, but the "
                                            "model has only 24 positions; shorten it"));
  config.samples.prompts = {""};
  EXPECT_THAT(refusal_of(config), HasSubstr("[samples] prompts: prompt 1 is empty"));
  config.samples = {.prompts = {"a"}, .chat = true};
  EXPECT_THAT(refusal_of(config), HasSubstr("[samples] chat = true needs the chat template"));
  config.samples.chat = false;
  write_token_file(folder / "tokens.bin", std::vector<std::int32_t>(4000, 300));
  config.model.vocab = 301;
  config.data = {.tokens = {folder / "tokens.bin"}, .validation = ""};
  EXPECT_THAT(refusal_of(config), HasSubstr("[samples] prompts need the tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/metrics.jsonl"));
}

TEST(TextSampler, AnswersQuestionsInTheChatTemplateOfTheData) {
  test::TemporaryPath folder;
  Config config = sampled(folder / "run", {.z = 2});
  config.training.seq_len = 96;
  test::spill(folder / "chats.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 100; ++i)
      lines += R"({"messages": [{"role": "user", "content": "Hi"}, )"
               R"({"role": "assistant", "content": "Ho"}]})"
               "\n";
    return lines;
  }());
  config.data = {.jsonl = {folder / "chats.jsonl"}, .validation = ""};
  config.samples = {.prompts = {"Hi"}, .chat = true, .tokens = 40};
  config.training.steps = 60;
  train_on_threads(config, kSamples);
  ASSERT_EQ(samples_of(config).size(), 1U);
  EXPECT_EQ(samples_of(config)[0].text, "Ho");
  EXPECT_EQ(samples_of(config)[0].end, "stop_string");
}

TEST(TextSampler, TakesTheMemoryThatTheDryRunStates) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}})
    for (const bool holds : {false, true}) {
      test::TemporaryPath folder;
      Config config = resolved(sampled(folder / "run", grid));
      config.samples.hold_weights = holds;
      if (holds) {  // training keeps frozen weights, which samples then read, too
        config.parallelism.keep_weights = KeepWeights::step;
        config.model.lora.rank = 2;
      }
      std::vector<std::int64_t> taken(grid.ranks());
      run_ranks(grid.ranks(), [&](Communicator& world) {
        Training training(prepared(config), world, make_cpu_backend(1));
        training.model.initialise();
        const TextSampler sampler =
            make_text_sampler(training.model, training.corpora.front()->tokenizer);
        training.run(0);
        training.model.arena().reset_peak();
        sampler();
        taken[world.rank()] = training.model.arena().stats().peak_bytes;
      });
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const DryRun run =
            dry_run(prepared(config), rank, {.make_text_sampler = make_text_sampler});
        EXPECT_EQ(run.sample_bytes, taken[rank]) << to_string(grid) << ' ' << rank;
        EXPECT_THAT(to_text(run, prepared(config)), HasSubstr("in all while samples are written"));
      }
      config.samples.prompts.clear();
      EXPECT_EQ(dry_run(prepared(config), 0, {.make_text_sampler = make_text_sampler}).sample_bytes,
                0);
    }
}

TEST(TextSampler, LogitsThatAreNotFiniteEndATextAndNotTheRun) {
  test::TemporaryPath folder;
  const Config config = resolved(sampled(folder / "run", {.x = 2, .z = 2}));
  with_model(config, [&](LoadedModel& model) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    ParameterGroup& last = *model.model().groups().back();
    if (last.sizes().piece > 0) last.set_values(model.context(), 0, std::span(&nan, 1));
    last.publish_values(model.context());
    const auto tokenizer = make_tokenizer("bytes");
    for (const TextSample& one : make_text_sampler(model, tokenizer)()) {
      EXPECT_EQ(one.end, "not_finite");
      EXPECT_EQ(one.text, "");
    }
    Generator generator(model, {});
    EXPECT_THROW(generator.generate({{1, 2}}, {.max_tokens = 2}), Error);
  });
}
