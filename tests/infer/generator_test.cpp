// Generated text on every grid and in every batch, compared with computing the whole prefix again
// for every token on one rank.
#include "axonn/infer/generator.h"

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/comm/threads/threads.h"

#include "tests/support/runs.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

using Prompts = std::vector<std::vector<std::int32_t>>;
using Continuations = std::vector<std::vector<std::int32_t>>;

constexpr std::int64_t kContext = 40;

Config config_of(const ModelConfig& sizes, const GridShape& grid = {}) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.data.tokenizer = "bytes";
  config.model = sizes;
  config.model.layers = 2;
  config.model.hidden = 96;
  config.model.heads = 24;
  config.model.head_dim = 4;
  config.model.ffn = 192;
  if (sizes.positions == 0) config.model.positions = kContext;
  config.model.init_std = 0.3;  // large enough that tokens depend on earlier ones
  return config;
}

ModelConfig gpt() { return {.kv_heads = 24}; }
ModelConfig grouped_gpt() { return {.kv_heads = 4, .tied = false}; }
ModelConfig llama() { return {.family = ModelFamily::llama, .kv_heads = 4, .tied = false}; }
ModelConfig mistral() {
  return {.family = ModelFamily::llama, .kv_heads = 4, .tied = false, .window = 5};
}
ModelConfig qwen3() { return {.family = ModelFamily::llama, .kv_heads = 2, .qk_norm = true}; }

/// Adds the tokenizer "bytes" to the options.
Generator::Options with_tokenizer(Generator::Options options) {
  static const auto bytes = make_tokenizer("bytes");
  options.tokenizer = bytes.get();
  return options;
}

/// Generates greedily, computing every token from all tokens before it in the context.
Continuations by_whole_prefixes(const ModelConfig& sizes, const Prompts& prompts,
                                std::int64_t count, std::int64_t context = kContext) {
  Continuations all;
  with_model(config_of(sizes), [&](LoadedModel& model) {
    for (const auto& prompt : prompts) {
      std::vector<std::int32_t> tokens = prompt;
      std::size_t begin = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        if (std::ssize(tokens) - static_cast<std::int64_t>(begin) > context)
          begin = tokens.size() - (context + 1) / 2;
        const std::span<const std::int32_t> seen(tokens.begin() + begin, tokens.end());
        const Context ctx = model.context();
        const std::int64_t last = std::ssize(seen) - 1;
        const Tensor logits = model.model().next_logits(
            ctx, make_tokens(ctx, seen, {}, {1, std::ssize(seen)}), std::span(&last, 1));
        tokens.push_back(sample({logits.view().as<float>(), 256}, {.temperature = 0}, 0));
      }
      all.emplace_back(tokens.begin() + std::ssize(prompt), tokens.end());
    }
  });
  return all;
}

std::vector<Generation> generate(const Config& config, const Prompts& prompts,
                                 const GenerationOptions& wanted,
                                 const Generator::Options& options = {}) {
  std::vector<Generation> result;
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer(options));
    const auto mine = generator.generate(prompts, wanted);
    if (model.grid().world().rank() == 0) result = mine;
  });
  return result;
}

Continuations tokens_of(const std::vector<Generation>& generations) {
  Continuations all;
  for (const Generation& generation : generations) all.push_back(generation.tokens);
  return all;
}

/// Returns prompts of 1, 4, 7, ... tokens.
Prompts some_prompts(int count) {
  Prompts prompts;
  for (int p = 0; p < count; ++p) {
    auto& prompt = prompts.emplace_back();
    for (int t = 0; t <= 3 * p; ++t) prompt.push_back((17 * p + 31 * t * t + 5) % 256);
  }
  return prompts;
}

struct Family {
  const char* name;
  ModelConfig (*sizes)();
};
class GeneratorOf : public testing::TestWithParam<Family> {};

const GridShape kGeneratorGrids[] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                     {1, 1, 1, 2}, {2, 2, 1, 1}, {2, 1, 2, 1}, {1, 2, 2, 1},
                                     {6, 1, 1, 1}, {2, 1, 1, 2}, {1, 3, 2, 1}, {2, 2, 2, 1},
                                     {2, 2, 1, 2}};

}  // namespace

TEST_P(GeneratorOf, AgreesWithComputingTheWholePrefixOnEveryGrid) {
  const Prompts prompts = some_prompts(5);
  const Continuations want = by_whole_prefixes(GetParam().sizes(), prompts, 20);
  for (const GridShape& grid : kGeneratorGrids)
    EXPECT_EQ(tokens_of(generate(config_of(GetParam().sizes(), grid), prompts, {.max_tokens = 20})),
              want)
        << to_string(grid);
}

TEST_P(GeneratorOf, GivesTheSameTextInEveryBatch) {
  const Prompts prompts = some_prompts(7);
  const Continuations want = by_whole_prefixes(GetParam().sizes(), prompts, 12);
  for (const std::int64_t batch : {1, 2, 3, 7, 20})
    for (const bool hold : {true, false})
      for (const GridShape& grid : {GridShape{1, 1, 2, 1}, {1, 1, 3, 1}, {1, 2, 1, 2}})
        EXPECT_EQ(tokens_of(generate(config_of(GetParam().sizes(), grid), prompts,
                                     {.max_tokens = 12}, {.batch = batch, .hold_weights = hold})),
                  want)
            << batch << " on " << to_string(grid) << (hold ? ", held" : "");
}

TEST_P(GeneratorOf, ContinuesFromTheLastHalfOfAFullContext) {
  const Prompts prompts = some_prompts(6);
  const Continuations want = by_whole_prefixes(GetParam().sizes(), prompts, 40, 12);
  for (const GridShape& grid : {GridShape{}, {1, 2, 2, 1}})
    EXPECT_EQ(tokens_of(generate(config_of(GetParam().sizes(), grid), prompts,
                                 {.max_tokens = 40, .slides = true}, {.context = 12})),
              want)
        << to_string(grid);
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorOf,
                         testing::Values(Family{"Gpt", gpt}, Family{"GroupedGpt", grouped_gpt},
                                         Family{"Llama", llama}, Family{"Mistral", mistral},
                                         Family{"Qwen3", qwen3}),
                         [](const auto& family) { return std::string(family.param.name); });

TEST(Generator, CachesOnlyTheWindowOfLongTexts) {
  ModelConfig sizes = mistral();
  sizes.positions = 120;  // slots have 5 + 63 entries
  Prompts prompts = some_prompts(4);
  prompts.push_back(prompts.back());
  for (int t = 0; t < 90; ++t) prompts.back().push_back(t * t % 256);
  const Continuations want = by_whole_prefixes(sizes, prompts, 90, 110);
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}})
    EXPECT_EQ(tokens_of(generate(config_of(sizes, grid), prompts,
                                 {.max_tokens = 90, .slides = true}, {.context = 110})),
              want)
        << to_string(grid);
}

TEST(Generator, DrawsTheSameTokensInEveryBatchAndOnEveryGrid) {
  const Prompts prompts = some_prompts(6);
  const GenerationOptions wanted{
      .max_tokens = 15,
      .sampling = {.temperature = 0.9, .top_k = 40, .top_p = 0.95, .repetition_penalty = 1.2},
      .seed = 7};
  const Continuations one = tokens_of(generate(config_of(llama()), prompts, wanted));
  EXPECT_NE(one[0], one[1]);
  for (const GridShape& grid : {GridShape{1, 1, 3, 1}, {2, 2, 1, 1}, {1, 2, 1, 2}})
    EXPECT_EQ(tokens_of(generate(config_of(llama(), grid), prompts, wanted, {.batch = 2})), one)
        << to_string(grid);
  GenerationOptions other = wanted;
  other.seed = 8;
  EXPECT_NE(tokens_of(generate(config_of(llama()), prompts, other)), one);
}

TEST(Generator, ReadsOnlyTheNewTokensOfAContinuedText) {
  ModelConfig long_mistral = mistral();
  long_mistral.positions = 120;
  for (const auto& sizes : {llama(), mistral(), long_mistral}) {
    const std::vector<std::int32_t> first(9, 65);
    const auto want = by_whole_prefixes(sizes, {first}, 10).front();
    std::vector<std::int32_t> longer = first;
    longer.insert(longer.end(), want.begin(), want.begin() + 8);
    longer.push_back(200);
    const auto want_longer = by_whole_prefixes(sizes, {longer}, 10).front();
    with_model(config_of(sizes, {2, 1, 1, 1}), [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({}));
      EXPECT_EQ(generator.generate({first}, {.max_tokens = 10}).front().tokens, want);
      EXPECT_EQ(generator.generate({longer}, {.max_tokens = 10}).front().tokens, want_longer);
      EXPECT_EQ(generator.generate({first}, {.max_tokens = 10}).front().tokens, want);
    });
  }
}

TEST(Generator, EndsAtStopTokensAndStopStringsAndAFullContext) {
  const Prompts prompt{{65, 66, 67}};
  const auto all = by_whole_prefixes(llama(), prompt, 10).front();
  const auto run = [&](const GenerationOptions& wanted) {
    return generate(config_of(llama(), {1, 1, 2, 1}), prompt, wanted).front();
  };
  const auto at = std::ranges::find(all, all[4]) - all.begin();
  const Generation token = run({.max_tokens = 10, .stop_tokens = {all[4]}});
  EXPECT_EQ(token.reason, FinishReason::stop_token);
  EXPECT_EQ(token.tokens, std::vector(all.begin(), all.begin() + at));

  const std::string text(all.begin(), all.end()), stop = text.substr(3, 3);
  const Generation string = run({.max_tokens = 10, .stop_strings = {"no such", stop}});
  EXPECT_EQ(string.reason, FinishReason::stop_string);
  EXPECT_EQ(string.text, text.substr(0, text.find(stop)));

  const Generation full = run({.max_tokens = 100});
  EXPECT_EQ(full.reason, FinishReason::context);
  EXPECT_EQ(full.tokens.size(), kContext - 3 + 1);
  EXPECT_EQ(run({.max_tokens = 4}).reason, FinishReason::max_tokens);
}

TEST(Generator, ReportsTextPieceByPieceOnEveryRank) {
  with_model(config_of(gpt(), {1, 1, 2, 1}), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.batch = 1}));
    std::vector<std::string> texts(3);
    const auto result = generator.generate(
        some_prompts(3), {.max_tokens = 9},
        [&](std::size_t prompt, std::string_view text) { texts[prompt] += text; });
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(result[i].text, texts[i]);
  });
}

TEST(Generator, RejectsPromptsThatItCannotContinue) {
  with_model(config_of(gpt()), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({}));
    const auto run = [&](const Prompts& prompts) {
      return [&generator, prompts] { generator.generate(prompts, {}); };
    };
    EXPECT_THAT(run({{1}, {}}), ThrowsMessage<UsageError>(HasSubstr("prompt 1 is empty")));
    EXPECT_THAT(run({{1, 256}}), ThrowsMessage<UsageError>(HasSubstr("has token 256")));
    EXPECT_THAT(run({std::vector<std::int32_t>(41, 1)}),
                ThrowsMessage<UsageError>(HasSubstr("41 tokens, but the context has only 40")));
  });
}
