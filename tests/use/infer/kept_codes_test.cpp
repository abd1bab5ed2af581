// Generation with keys and values that are kept as codes of q8_0.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/use/infer/evaluate.h"

#include "tests/use/infer/generator_models.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

constexpr KeptForm kKeptCodes{Quantization::q8_0};

/// Heads of 40 columns: a block of 32 values, and one of 8.
ModelConfig wide_heads() {
  ModelConfig sizes = llama();
  sizes.kv_heads = 2;
  return sizes;
}

Config config_with(const ModelConfig& sizes, const GridShape& grid = {}) {
  Config config = config_of(sizes, grid);
  if (sizes.kv_heads == 2) {
    config.model.heads = 4;
    config.model.head_dim = 40;
  }
  return config;
}

/// The log-probabilities of the tokens after each prompt, as evaluation computes them of the whole
/// texts on one rank.
std::vector<std::vector<double>> evaluated(const Config& config, const Prompts& prompts,
                                           const std::vector<Generation>& texts,
                                           const KeptForm& kept) {
  std::vector<std::vector<double>> all;
  with_model(on_grid(config, {}), [&](LoadedModel& model) {
    const auto at = [&](std::int64_t n) {
      std::vector<std::int32_t> tokens = prompts[n];
      tokens.insert(tokens.end(), texts[n].tokens.begin(), texts[n].tokens.end());
      const auto positions = std::ssize(tokens) - 1;
      return ScoredSequence{tokens, std::ssize(texts[n].tokens), positions};
    };
    for (const TargetScores& one :
         score_targets(model, {.count = std::ssize(prompts), .at = at}, {.kept = kept})) {
      auto& scores = all.emplace_back();
      for (const float loss : one.losses) scores.push_back(-loss);
    }
  });
  return all;
}

/// The mean distance of the log-probabilities of generated tokens from others.
double distance(const std::vector<Generation>& texts,
                const std::vector<std::vector<double>>& others) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (std::size_t t = 0; t < texts[i].tokens.size(); ++t, ++count)
      sum += std::abs(texts[i].scores[t].log_probability - others[i][t]);
  return sum / count;
}

/// Expects the scores of evaluation with codes, and not those of evaluation without. Where rounding
/// differs, a code may be another, which is a hundredth of what all codes change.
void expect_scores(const Config& config, const Generator::Options& options) {
  const Prompts prompts = some_prompts(5);
  const auto texts = generate(config, prompts, {.max_tokens = 20, .likeliest = 0}, options);
  const double codes = distance(texts, evaluated(config, prompts, texts, kKeptCodes)),
               values = distance(texts, evaluated(config, prompts, texts, {}));
  EXPECT_GT(values, 1e-4) << "codes change nothing";
  EXPECT_LT(codes, values / 8);
}

}  // namespace

TEST(KeptCodes, GiveTheScoresOfEvaluationWithCodesOnEveryGrid) {
  for (const auto& sizes : {gpt(), grouped_gpt(), llama(), mistral(), olmo3(), qwen3_5(), llama4(),
                            gemma4(), mixtral(), wide_heads()})
    for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 1, 1}, {2, 2, 2, 1}}) {
      SCOPED_TRACE(testing::Message()
                   << "family " << static_cast<int>(sizes.family) << ' ' << to_string(grid));
      expect_scores(config_with(sizes, grid), {.kept = kKeptCodes});
    }
}

TEST(KeptCodes, GiveTheseScoresWhateverRunsBeside) {
  for (const std::int64_t batch : {1, 2, 3, 5}) {
    SCOPED_TRACE(batch);
    expect_scores(config_with(wide_heads()), {.batch = batch, .kept = kKeptCodes});
    expect_scores(config_with(mistral()), {.batch = batch, .kept = kKeptCodes});
  }
}

TEST(KeptCodes, GiveTheSameTextOnGridsOfOneAndTwoRanks) {
  const Prompts prompts = some_prompts(5);
  for (const auto& sizes : {gpt(), llama(), wide_heads()}) {
    const Continuations want =
        tokens_of(generate(config_with(sizes), prompts, {.max_tokens = 20}, {.kept = kKeptCodes}));
    for (const GridShape& grid : {GridShape{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}})
      EXPECT_EQ(tokens_of(generate(config_with(sizes, grid), prompts, {.max_tokens = 20},
                                   {.kept = kKeptCodes})),
                want)
          << to_string(grid);
  }
}

/// Tokens that a slot still has are not read again, and all rows see the values of codes, so that
/// scores are those of a text that is read whole.
TEST(KeptCodes, InASlotServeTheTextThatGoesOn) {
  const Config config = config_with(wide_heads());
  const std::vector<std::int32_t> first(9, 65);
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.kept = kKeptCodes}));
    std::vector<std::int32_t> longer = first;
    const auto start = generator.generate({first}, {.max_tokens = 10}).front().tokens;
    longer.insert(longer.end(), start.begin(), start.begin() + 8);
    longer.push_back(200);
    const auto got = generator.generate({longer}, {.max_tokens = 10, .likeliest = 0});
    EXPECT_GE(got.front().cached_tokens, 16);
    EXPECT_LT(distance(got, evaluated(config, {longer}, got, kKeptCodes)),
              distance(got, evaluated(config, {longer}, got, {})) / 8);
  });
}

TEST(KeptCodes, AreCopiedToTheSlotsOfBeams) {
  GenerationOptions wanted{.max_tokens = 12, .beams = {.beams = 4, .returned = 1}};
  const Prompts prompts = some_prompts(4);
  for (const auto& sizes : {llama(), wide_heads(), mistral()}) {
    const Config config = config_with(sizes);
    const auto texts = generate(config, prompts, wanted, {.kept = kKeptCodes});
    const auto codes = evaluated(config, prompts, texts, kKeptCodes),
               values = evaluated(config, prompts, texts, {});
    double from_codes = 0, from_values = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto mean = [](const std::vector<double>& scores) {
        return std::accumulate(scores.begin(), scores.end(), 0.0) / std::ssize(scores);
      };
      from_codes += std::abs(texts[i].beam_score - mean(codes[i]));
      from_values += std::abs(texts[i].beam_score - mean(values[i]));
    }
    EXPECT_LT(from_codes, from_values / 8);
  }
}

/// Drafts are verified with the same codes.
TEST(KeptCodes, GiveTheSameTextWithDrafts) {
  const GenerationOptions wanted{.max_tokens = 24,
                                 .logit_bias = {{3, 50.0f}, {7, 50.0f}, {11, 50.0f}}};
  const Prompts prompts = some_prompts(5);
  for (const auto& sizes : {llama(), mistral(), wide_heads()}) {
    const Config config = config_with(sizes);
    const Continuations want = tokens_of(generate(config, prompts, wanted, {.kept = kKeptCodes}));
    with_model(config, [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({.drafts = 6, .kept = kKeptCodes}));
      EXPECT_EQ(tokens_of(generator.generate(prompts, wanted)), want);
      EXPECT_GT(generator.stats().kept, 5);
    });
  }
}

/// Of 2 layers, 2 x 2 heads of 40 columns take 44 bytes a position as codes, and 160 as floats.
TEST(KeptCodes, LetMoreSequencesFitIntoTheCacheToTheByte) {
  constexpr std::int64_t kHeads = std::int64_t{2} * 2 * 2 * kContext, kOfCodes = kHeads * 44,
                         kOfFloats = kHeads * 160;
  const auto slots = [](const GridShape& grid, const Generator::Options& options) {
    std::int64_t count = 0;
    with_model(config_with(wide_heads(), grid), [&](LoadedModel& model) {
      count = Generator(model, with_tokenizer(options)).reserve(1000);
    });
    return count;
  };
  EXPECT_EQ(slots({}, {.cache_bytes = 5 * kOfFloats}), 5);
  EXPECT_EQ(slots({}, {.cache_bytes = 5 * kOfCodes, .kept = kKeptCodes}), 5);
  EXPECT_EQ(slots({}, {.cache_bytes = 5 * kOfCodes - 1, .kept = kKeptCodes}), 4);
  EXPECT_EQ(slots({2, 1, 1, 1}, {.cache_bytes = 5 * kOfCodes / 2, .kept = kKeptCodes}), 5);
  const auto live = [](const KeptForm& kept) {
    std::int64_t bytes = 0;
    with_model(config_with(wide_heads()), [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({.batch = 8, .kept = kept}));
      generator.generate(some_prompts(8), {.max_tokens = 3});
      bytes = model.arena().stats().live_bytes;
    });
    return bytes;
  };
  EXPECT_EQ(live({}) - live(kKeptCodes), 8 * (kOfFloats - kOfCodes));
}

/// A backend whose attention reads no codes, as that of a GPU.
class WithoutCodes : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool reads_kept_codes() const override { return false; }
};

TEST(KeptCodes, AreRefusedWhereTheyCannotBe) {
  const auto refused = [](LoadedModel& model, std::string_view words) {
    EXPECT_THAT([&] { Generator(model, {.kept = kKeptCodes}); },
                ThrowsMessage<UsageError>(HasSubstr(words)));
    const ScoredSequences none{.count = 0, .at = {}};
    EXPECT_THAT([&] { score(model, none, {.kept = kKeptCodes}); },
                ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  with_model(config_of(deepseek()), [&](LoadedModel& model) {
    refused(model, "--kv-cache q8_0: latent attention keeps latents");
  });
  const auto self = make_self();
  LoadedModel on_another(prepared_model(config_of(llama())), *self,
                         std::make_unique<WithoutCodes>(make_cpu_backend(1)), {.trainable = false});
  refused(on_another, "leave --kv-cache out, or compute on the CPU by --device cpu");
  with_model(config_of(llama()), [&](LoadedModel& model) {
    EXPECT_THAT([&] { Generator(model, {.trained_positions = kContext, .kept = kKeptCodes}); },
                ThrowsMessage<Error>(HasSubstr("scores of a training")));
    EXPECT_THAT([&] { Generator(model, {.kept = {Quantization::q4_0}}); },
                ThrowsMessage<Error>(HasSubstr("in q4_0, wanted q8_0")));
  });
}
