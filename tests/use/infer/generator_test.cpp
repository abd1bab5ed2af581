// Generated text on every grid and in every batch, compared with computing the whole prefix again
// for every token on one rank.
#include "axonn/use/infer/generator.h"

#include <cstring>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/use/infer/evaluate.h"

#include "tests/support/capturing_device.h"
#include "tests/use/infer/generator_models.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

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

/// Fills the free memory of the arena with NaN, as work between passes may.
void spoil_free_memory(LoadedModel& model) {
  const Tensor all = model.context().empty(1, std::int64_t{1} << 20, DType::f32);
  std::memset(all.view().data, 0xff, static_cast<std::size_t>(all.bytes()));
}

class GeneratorOf : public testing::TestWithParam<SmallModel> {};

}  // namespace

TEST(Generator, ExpertsOnSeveralRanksGiveTheTokensOfOneRank) {
  const Prompts prompts = some_prompts(5);
  const Continuations want = by_whole_prefixes(mixtral(), prompts, 20);
  for (GridShape grid : {GridShape{1, 1, 2, 1}, {2, 1, 2, 1}, {1, 2, 2, 1}, {1, 1, 4, 2}}) {
    grid.experts = grid.z;
    Config config = config_of(mixtral(), grid);
    config.parallelism.experts = grid.experts;
    EXPECT_EQ(tokens_of(generate(config, prompts, {.max_tokens = 20})), want) << with_factors(grid);
  }
}

TEST(Generator, CodesOnSeveralRanksGiveTheTokensOfOneRank) {
  const Prompts prompts = some_prompts(5);
  for (ModelConfig sizes : {gpt(), llama(), mixtral(), deepseek()})
    for (const Quantization kind : {Quantization::q8_0, Quantization::int8, Quantization::nf4}) {
      if (kind == Quantization::q8_0 && (sizes.experts > 0 || sizes.kv_lora_rank > 0))
        continue;  // columns that are no multiple of 32
      sizes.quantize = kind;
      sizes.quantize_embeddings = kind != Quantization::nf4;
      const Continuations want = by_whole_prefixes(sizes, prompts, 20);
      for (const GridShape& grid : {GridShape{}, {2, 2, 1, 1}, {1, 2, 2, 1}, {1, 1, 4, 2}})
        for (const bool holds : {true, false})
          EXPECT_EQ(tokens_of(generate(config_of(sizes, grid), prompts, {.max_tokens = 20},
                                       {.hold_weights = holds})),
                    want)
              << "family " << static_cast<int>(sizes.family) << ' ' << to_string(grid);
    }
}

TEST(Generator, PassesWithExpertsAreNotCaptured) {
  const auto device = std::make_shared<CapturingDevice>();
  const auto self = make_self();
  const Config config = config_of(mixtral());
  LoadedModel model(prepared_model(config), *self, std::make_unique<CapturingBackend>(device),
                    {.trainable = false});
  model.initialise();
  Generator generator(model, with_tokenizer({}));
  const Prompts prompts = some_prompts(2);
  EXPECT_EQ(tokens_of(generator.generate(prompts, {.max_tokens = 12})),
            tokens_of(generate(config, prompts, {.max_tokens = 12})));
  EXPECT_EQ(device->launches(), 0);
}

TEST(Generator, HeadsThatXDoesNotDivideGiveTheTokensOfOneRank) {
  const Prompts prompts = some_prompts(5);
  const auto uneven = [](const GridShape& grid) {
    Config config = config_of(llama(), grid);
    config.model.heads = 9;
    config.model.kv_heads = 3;
    config.model.ffn = 53;
    return config;
  };
  const Continuations want = tokens_of(generate(uneven({}), prompts, {.max_tokens = 20}));
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, {4, 1, 2, 1}, {2, 2, 1, 1}, {8, 1, 1, 1}})
    EXPECT_EQ(tokens_of(generate(uneven(grid), prompts, {.max_tokens = 20})), want)
        << to_string(grid);
}

TEST(Generator, StatesOfDeltaNetsGiveTheTextOfWholePrefixes) {
  const Prompts prompts = some_prompts(6);
  const Continuations want = by_whole_prefixes(qwen3_5(), prompts, 20),
                      want_slid = by_whole_prefixes(qwen3_5(), prompts, 40, 12);
  for (const GridShape& grid : kGeneratorGrids)
    EXPECT_EQ(tokens_of(generate(config_of(qwen3_5(), grid), prompts, {.max_tokens = 20})), want)
        << to_string(grid);
  for (const std::int64_t batch : {1, 3, 7})
    EXPECT_EQ(tokens_of(generate(config_of(qwen3_5(), {1, 2, 1, 2}), prompts, {.max_tokens = 20},
                                 {.batch = batch})),
              want)
        << batch;
  EXPECT_EQ(tokens_of(generate(config_of(qwen3_5(), {1, 2, 2, 1}), prompts,
                               {.max_tokens = 40, .slides = true}, {.context = 12})),
            want_slid);
}

/// Without queries' latents, and with a window, heads that x does not divide, and a cap of scores.
TEST(Generator, CachedLatentsGiveTheTextOfWholePrefixes) {
  ModelConfig plain = deepseek();
  plain.q_lora_rank = 0;
  plain.window = 5;
  plain.score_cap = 4;
  const Prompts prompts = some_prompts(5);
  const Continuations want = by_whole_prefixes(plain, prompts, 20);
  for (const GridShape& grid : {GridShape{}, {2, 2, 1, 1}, {1, 2, 2, 1}, {4, 1, 1, 2}})
    EXPECT_EQ(tokens_of(generate(config_of(plain, grid), prompts, {.max_tokens = 20})), want)
        << to_string(grid);
  // The scores of what was generated are those of a pass that reads it as training would.
  with_model(config_of(plain, {2, 2, 1, 1}), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({}));
    const auto texts = generator.generate(prompts, {.max_tokens = 20, .likeliest = 0});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Prompts whole{prompts[i]};
      whole[0].insert(whole[0].end(), texts[i].tokens.begin(), texts[i].tokens.end());
      const auto read =
          generator.generate(whole, {.max_tokens = 0, .likeliest = 0, .score_prompt = true})[0]
              .prompt_scores;
      ASSERT_EQ(read.size(), whole[0].size() - 1);
      for (std::size_t t = 0; t < 20; ++t)
        EXPECT_NEAR(texts[i].scores[t].log_probability,
                    read[prompts[i].size() - 1 + t].log_probability, 1e-5);
    }
  });
  const auto uneven = [](const GridShape& grid) {
    Config config = config_of(deepseek(), grid);
    config.model.heads = config.model.kv_heads = 9;
    return config;
  };
  const Continuations of_nine = tokens_of(generate(uneven({}), prompts, {.max_tokens = 20}));
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, {4, 3, 1, 1}, {2, 2, 1, 1}})
    EXPECT_EQ(tokens_of(generate(uneven(grid), prompts, {.max_tokens = 20})), of_nine)
        << to_string(grid);
}

/// As many sequences fit as the bytes of latents allow: 12 + 12 values of f32 of two layers at each
/// position, where keys and values of 24 heads would be 864.
TEST(Generator, LatentsLetMoreSequencesFitIntoTheCache) {
  const std::int64_t of_latents = std::int64_t{2} * kContext * (12 + 12) * 4,
                     of_heads = std::int64_t{2} * kContext * 2 * 24 * 18 * 4;
  const auto slots = [](Config config, const Generator::Options& options) {
    std::int64_t count = 0;
    with_model(config, [&](LoadedModel& model) {
      count = Generator(model, with_tokenizer(options)).reserve(1000);
    });
    return count;
  };
  const Config config = config_of(deepseek());
  EXPECT_EQ(slots(config, {.cache_bytes = 5 * of_latents}), 5);
  EXPECT_EQ(slots(config, {.cache_bytes = 5 * of_heads, .trained_positions = kContext}), 5);
  Config adapted = config;
  adapted.model.lora.rank = 2;
  EXPECT_EQ(slots(adapted, {.cache_bytes = 5 * of_heads}), 5);
}

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

TEST_P(GeneratorOf, PassesThatAreGraphsGiveTheSameTextAndScores) {
  const Prompts prompts = some_prompts(7);
  const Config config = config_of(GetParam().sizes());
  const GenerationOptions wanted{.max_tokens = 14, .likeliest = 2};
  for (const std::int64_t batch : {1, 3, 7}) {
    const auto self = make_self();
    const auto device = std::make_shared<CapturingDevice>();
    LoadedModel plain(prepared_model(config), *self, make_cpu_backend(1), {.trainable = false}),
        captured(prepared_model(config), *self, std::make_unique<CapturingBackend>(device),
                 {.trainable = false});
    plain.initialise();
    captured.initialise();
    Generator eager(plain, with_tokenizer({.batch = batch})),
        by_graphs(captured, with_tokenizer({.batch = batch}));
    for (const char* what : {"first", "from kept prompts"}) {
      SCOPED_TRACE(testing::Message() << what << ", in batches of " << batch);
      const int before = device->launches();
      const auto want = eager.generate(prompts, wanted);
      const auto got = by_graphs.generate(
          prompts, wanted,
          [&](std::size_t, std::string_view, const Generation&) { spoil_free_memory(captured); });
      ASSERT_EQ(tokens_of(got), tokens_of(want));
      for (std::size_t i = 0; i < got.size(); ++i)
        for (std::size_t t = 0; t < got[i].tokens.size(); ++t) {
          EXPECT_EQ(got[i].scores[t].log_probability, want[i].scores[t].log_probability);
          EXPECT_EQ(got[i].scores[t].likeliest, want[i].scores[t].likeliest);
        }
      EXPECT_GT(device->launches(), before + 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorOf,
                         testing::Values(SmallModel{"Gpt", gpt},
                                         SmallModel{"GroupedGpt", grouped_gpt},
                                         SmallModel{"Opt", opt}, SmallModel{"Llama", llama},
                                         SmallModel{"Mistral", mistral}, SmallModel{"Qwen3", qwen3},
                                         SmallModel{"Olmo3", olmo3}, SmallModel{"Phi3", phi3},
                                         SmallModel{"Llama4", llama4},
                                         SmallModel{"DeepSeek", deepseek},
                                         SmallModel{"Gemma4", gemma4}),
                         [](const auto& family) { return std::string(family.param.name); });

void expect_long_texts(ModelConfig sizes) {
  sizes.positions = 120;  // slots have 5 + 63 entries if all layers have the window
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

TEST(Generator, CachesOnlyTheWindowOfLongTexts) { expect_long_texts(mistral()); }

TEST(Generator, CachesOnlyTheChunkOfLongTexts) { expect_long_texts(chunks()); }

TEST(Generator, CachesAllOfLongTextsIfALayerHasNoWindow) { expect_long_texts(olmo3()); }

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
  for (const auto& sizes : {llama(), mistral(), long_mistral, phi3(), qwen3_5()}) {
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
        [&](std::size_t prompt, std::string_view text, const Generation& so_far) {
          texts[prompt] += text;
          EXPECT_EQ(so_far.text, texts[prompt]);
          EXPECT_LE(so_far.tokens.size(), 9U);
        });
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(result[i].text, texts[i]);
  });
}

TEST(Generator, RejectsPromptsThatItCannotContinue) {
  with_model(config_of(gpt()), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({}));
    const auto run = [&](const Prompts& prompts) {
      return [&generator, prompts] { generator.generate(prompts, {}); };
    };
    EXPECT_THAT(run({{1}, {}}),
                ThrowsMessage<UsageError>(HasSubstr("prompt 1: the prompt is empty")));
    EXPECT_THAT(run({{1, 256}}), ThrowsMessage<UsageError>(HasSubstr("has token 256")));
    EXPECT_THAT(run({std::vector<std::int32_t>(41, 1)}),
                ThrowsMessage<UsageError>(HasSubstr("41 tokens, but the context has only 40")));
  });
}

TEST(Generator, ScoresPromptsAsEvaluationDoesOnEveryGridWhileOthersAreGenerated) {
  ModelConfig sizes = llama();
  sizes.positions = 400;
  Prompts prompts;  // of several passes, and of fewer tokens than a pass
  for (const int size : {300, 2, 129, 40})
    for (auto& prompt = prompts.emplace_back(); std::ssize(prompt) < size;)
      prompt.push_back(static_cast<std::int32_t>((std::ssize(prompt) * 31 + size) % 256));
  std::vector<SequenceScore> want;
  with_model(config_of(sizes), [&](LoadedModel& model) {
    want = score(model,
                 {.count = std::ssize(prompts),
                  .at =
                      [&](std::int64_t n) {
                        const std::int64_t size = std::ssize(prompts[n]);
                        return ScoredSequence{prompts[n], size - 1, size - 1};
                      }},
                 {});
  });
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, {2, 1, 2, 1}, {1, 2, 1, 2}, {1, 1, 2, 1}}) {
    SCOPED_TRACE(to_string(grid));
    with_model(config_of(sizes, grid), [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({}));
      generator.reserve(5);
      const std::size_t other = generator.add({5, 6, 7}, {.max_tokens = 30});
      std::map<std::size_t, std::size_t> prompt_of;
      for (std::size_t i = 0; i < prompts.size(); ++i)
        prompt_of[generator.add(prompts[i],
                                {.max_tokens = 1, .likeliest = 1, .score_prompt = true})] = i;
      while (!generator.idle())
        generator.step({}, [&](std::size_t number, Generation got) {
          if (number == other) return;
          const std::size_t i = prompt_of.at(number);
          ASSERT_EQ(std::ssize(got.prompt_scores), want[i].targets);
          double nats = 0;
          std::int64_t greedy = 0;
          for (std::size_t t = 0; t < got.prompt_scores.size(); ++t) {
            const TokenScore& token = got.prompt_scores[t];
            nats -= token.log_probability;
            EXPECT_GE(token.likeliest.at(0).second, token.log_probability);
            greedy += token.likeliest[0].second == token.log_probability;
          }
          EXPECT_NEAR(nats, want[i].nats, 1e-5 * static_cast<double>(want[i].targets));
          EXPECT_EQ(greedy, want[i].greedy);
          ASSERT_EQ(got.scores.size(), 1U);
          EXPECT_EQ(got.scores[0].likeliest.at(0).first, got.tokens.at(0));
          EXPECT_EQ(got.scores[0].likeliest[0].second, got.scores[0].log_probability);
        });
    });
  }
}

TEST(Generator, PromptsComeAndGoBetweenSteps) {
  const Prompts prompts = some_prompts(6);
  const auto alone = tokens_of(generate(config_of(gpt()), prompts, {.max_tokens = 8}));
  with_model(config_of(gpt(), {2, 1, 2, 1}), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.batch = 2}));
    EXPECT_EQ(generator.reserve(100), 4);
    std::map<std::size_t, Continuations::value_type> got;
    std::vector<std::size_t> numbers;
    std::size_t next = 0, steps = 0;
    do {
      if (next < prompts.size())
        numbers.push_back(generator.add(prompts[next++], {.max_tokens = 8}));
      if (steps++ == 3) generator.cancel(numbers[1]);  // running
      if (steps == 6) generator.cancel(numbers[5]);    // waiting
      generator.step({}, [&](std::size_t number, Generation result) {
        got[number] = std::move(result.tokens);
      });
    } while (!generator.idle());
    generator.cancel(numbers[0]);  // ended: nothing happens
    EXPECT_EQ(got.size(), 4U);
    for (const std::size_t i : {0, 2, 3, 4}) EXPECT_EQ(got[numbers[i]], alone[i]) << i;
  });
}

TEST(Generator, ScoresAreLogProbabilitiesBeforeTemperatureAndPenalty) {
  const std::vector<float> logits{0, 1, 3, 3, -1};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  const TokenScore score = score_of(logits, 1, 3, 4);
  EXPECT_NEAR(score.log_probability, 1 - std::log(sum), 1e-6);
  ASSERT_EQ(score.likeliest.size(), 3U);
  EXPECT_EQ(score.likeliest[0].first, 2);
  EXPECT_EQ(score.likeliest[1].first, 3);
  EXPECT_EQ(score.likeliest[2].first, 1);
  EXPECT_EQ(score.likeliest[2].second, score.log_probability);

  const GenerationOptions plain{.max_tokens = 5, .sampling = {.temperature = 0}, .likeliest = 0};
  GenerationOptions warm = plain;
  warm.sampling = {.temperature = 0.7, .top_k = 1};
  const auto cold = generate(config_of(gpt()), {{1, 2, 3}}, plain),
             hot = generate(config_of(gpt()), {{1, 2, 3}}, warm);
  EXPECT_EQ(cold[0].scores.size(), 5U);
  EXPECT_TRUE(cold[0].scores[0].likeliest.empty());
  EXPECT_EQ(cold[0].scores, hot[0].scores);
  warm.sampling = {.temperature = 0, .repetition_penalty = 1e3};
  warm.max_tokens = 1;
  EXPECT_LE(generate(config_of(gpt()), {{1, 2, 3}}, warm)[0].scores[0].log_probability,
            cold[0].scores[0].log_probability);
}
