// Beam search on every grid, compared with transformers and with a search that computes the whole
// text of every beam again for every token on one rank.
#include "axonn/use/infer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"

#include "tests/support/model_folder.h"
#include "tests/support/temporary_path.h"
#include "tests/use/infer/generator_models.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// The likeliest tokens by logits, with log-probabilities.
BeamSearch::Candidates likeliest(std::span<const float> logits, std::int64_t count) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  BeamSearch::Candidates all;
  for (std::size_t token = 0; token < logits.size(); ++token)
    all.push_back(
        {static_cast<std::int32_t>(token), static_cast<float>(logits[token] - std::log(sum))});
  std::ranges::stable_sort(all, std::ranges::greater(), &BeamSearch::Candidate::log_probability);
  all.resize(count);
  return all;
}

/// What texts of bytes may be, beside what GenerationOptions says, in plain words.
struct TextRules {
  /// Whether a byte may follow a text; empty: any. End tokens may follow all but the empty text.
  std::function<bool(const std::string& text, char next)> allows = {};
  /// Whether a text is complete; empty: none.
  std::function<bool(const std::string& text)> completes = {};
};

std::string bytes_as_text(const std::vector<std::int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

/// What the search finds if every text is computed whole.
std::vector<std::vector<BeamSearch::Ended>> by_whole_texts(const ModelConfig& sizes,
                                                           const Prompts& prompts,
                                                           const GenerationOptions& wanted,
                                                           const TextRules& rules = {}) {
  std::vector<std::vector<BeamSearch::Ended>> all;
  with_model(config_of(sizes), [&](LoadedModel& model) {
    for (const auto& prompt : prompts) {
      BeamSearch search({wanted.beams, wanted.stop_tokens, wanted.max_tokens});
      while (!search.done()) {
        std::vector<BeamSearch::Candidates> candidates;
        for (const auto& running : search.running()) {
          std::vector<std::int32_t> text = prompt;
          text.insert(text.end(), running.tokens.begin(), running.tokens.end());
          const Context ctx = model.context();
          const std::int64_t last = std::ssize(text) - 1;
          const Tensor logits = model.model().next_logits(
              ctx, make_tokens(ctx, text, {}, {1, std::ssize(text)}), std::span(&last, 1));
          candidates.push_back(likeliest({logits.view().as<float>(), 256}, 256));
          if (rules.allows)
            for (auto& [token, log_probability, plain] : candidates.back())
              if (search.ends(token)
                      ? running.tokens.empty()
                      : !rules.allows(bytes_as_text(running.tokens), static_cast<char>(token)))
                log_probability = -std::numeric_limits<float>::infinity();
        }
        search.step(candidates, [&](std::size_t text, std::int32_t token) {
          if (!rules.completes) return false;
          return rules.completes(bytes_as_text(search.running()[text].tokens) +
                                 static_cast<char>(token));
        });
      }
      all.push_back(search.ended());
    }
  });
  return all;
}

/// A search that meets ends early, but not at once.
GenerationOptions some_beams() {
  GenerationOptions wanted{.max_tokens = 14, .beams = {.beams = 4, .returned = 3}};
  for (std::int32_t token = 5; token < 256; token += 11) wanted.stop_tokens.push_back(token);
  return wanted;
}

void expect_found(const Generation& got, std::span<const BeamSearch::Ended> want,
                  std::int64_t returned) {
  ASSERT_EQ(std::ssize(got.others), returned - 1);
  for (std::int64_t i = 0; i < returned; ++i) {
    const Generation& text = i == 0 ? got : got.others[i - 1];
    EXPECT_EQ(text.tokens, want[i].tokens) << i;
    EXPECT_NEAR(text.beam_score, want[i].score, 2e-5 * (1 + std::abs(want[i].score))) << i;
    EXPECT_EQ(text.reason == FinishReason::stop_token || text.reason == FinishReason::stop_string,
              want[i].by_token || want[i].complete)
        << i;
    if (!text.text.empty()) {
      EXPECT_EQ(text.text + text.stop, bytes_as_text(text.tokens));
    }
  }
}

/// A search, and what transformers 5.23 finds after each of kRecordedPrompts.
struct RecordedSearch {
  GenerationOptions wanted;
  std::vector<std::vector<BeamSearch::Ended>> found = {};
};

const Prompts kRecordedPrompts{{5, 17, 3, 99, 40}, {8, 77, 1}, {2, 30, 4, 61, 9, 9, 55, 12}};
const std::vector<std::int32_t> kRecordedEnds{7, 20, 33, 41, 58, 60, 72, 85, 90, 96};

const std::vector<RecordedSearch> kRecorded{
    {{.max_tokens = 12, .beams = {4, 4, 1.0, EarlyStopping::no}, .stop_tokens = kRecordedEnds},
     {{{{63, 16, 6, 17, 16, 40, 6, 80, 79}, -2.26923f, true},
       {{63, 16, 6, 17, 16, 40, 6, 80, 79, 79, 100, 5}, -2.28906f, false},
       {{63, 16, 6, 17, 16, 40, 6, 80}, -2.28923f, true},
       {{63, 16, 6, 17, 16, 40, 6, 80, 79, 79, 100}, -2.3026f, true}},
      {{{14}, -2.0291f, true},
       {{14, 5}, -2.25752f, true},
       {{14, 91, 63, 8}, -2.28031f, true},
       {{14, 97, 81, 63, 8, 19}, -2.30067f, true}},
      {{{87, 11, 28, 81, 61, 35, 63, 27, 76, 51, 63, 6}, -2.30805f, false},
       {{87, 11, 28, 81, 61, 35, 63, 70}, -2.34939f, true},
       {{87, 11, 28, 81, 61, 35, 63, 27, 76, 51, 44, 1}, -2.35866f, false},
       {{87, 11, 28, 81, 61, 27, 11, 8, 25, 50, 1}, -2.37129f, true}}}},
    {{.max_tokens = 12, .beams = {4, 2, 0.0, EarlyStopping::yes}, .stop_tokens = kRecordedEnds},
     {{{{}, -3.31142f, true}, {{63, 16, 59}, -9.74465f, true}},
      {{{14}, -4.05819f, true}, {{14, 5}, -6.77257f, true}},
      {{{87, 11, 28}, -10.0034f, true}, {{87, 11, 28, 26, 8}, -14.3219f, true}}}},
    {{.max_tokens = 12, .beams = {3, 3, 2.5, EarlyStopping::never}, .stop_tokens = kRecordedEnds},
     {{{{63, 16, 6, 17, 16, 40, 6, 80, 79, 79, 100, 5}, -0.0550662f, false},
       {{63, 16, 6, 17, 16, 40, 6, 80, 79, 79, 100}, -0.0553919f, true},
       {{63, 16, 6, 17, 16, 40, 6, 80, 80, 89, 53}, -0.055713f, true}},
      {{{14, 97, 81, 63, 8, 12, 86, 92, 66, 25, 81, 28}, -0.0556946f, false},
       {{14, 97, 81, 63, 8, 12, 86, 92, 66, 25, 59, 8}, -0.0559141f, false},
       {{14, 97, 81, 63, 8, 12, 86, 92, 66, 25, 81, 97}, -0.0564216f, false}},
      {{{87, 11, 28, 81, 61, 27, 11, 8, 25, 50, 2, 70}, -0.0565285f, false},
       {{87, 11, 28, 81, 61, 27, 11, 8, 25, 50, 1}, -0.0570444f, true},
       {{87, 11, 28, 81, 61, 27, 11, 8, 25, 50, 1, 43}, -0.0575581f, false}}}},
    {{.max_tokens = 9,
      .beams = {3, 1, -1.0, EarlyStopping::no},
      .stop_tokens = kRecordedEnds,
      .min_tokens = 4},
     {{{{63, 16, 6, 17, 16, 40, 6, 80, 79}, -185.007f, false}},
      {{{14, 91, 63, 8}, -57.0077f, true}},
      {{{87, 11, 28, 26, 8}, -85.9312f, true}}}},
    {{.max_tokens = 10,
      .sampling = {.temperature = 0, .repetition_penalty = 1.3},
      .beams = {6, 3, 0.6, EarlyStopping::never},
      .stop_tokens = {7}},
     {{{{63, 16, 59, 72, 28}, -4.7886f, true},
       {{63, 16, 59, 72, 28, 4, 80, 80, 61, 33}, -5.60852f, false},
       {{63, 16, 59, 72, 28, 4, 80, 80, 80, 85}, -5.68931f, false}},
      {{{14, 5}, -3.50333f, true},
       {{14, 85, 59, 85, 76, 11, 74, 80, 41, 25}, -5.64432f, false},
       {{14, 85, 59, 85, 76, 11, 74, 80, 41, 63}, -5.67031f, false}},
      {{{87, 11, 28, 26, 8, 60, 85, 73, 80, 16}, -6.16063f, false},
       {{87, 11, 28, 26, 8, 60, 85, 56, 97, 19}, -6.16253f, false},
       {{87, 11, 28, 26, 8, 60, 85, 73, 80, 83}, -6.19327f, false}}}},
    {{.max_tokens = 7, .beams = {2, 2, 1.0, EarlyStopping::yes}},
     {{{{63, 16, 6, 17, 87, 63, 84}, -2.31709f, false},
       {{63, 16, 6, 17, 16, 40, 6}, -2.33752f, false}},
      {{{14, 85, 59, 85, 76, 11, 74}, -2.10185f, false},
       {{14, 85, 59, 85, 76, 11, 31}, -2.17034f, false}},
      {{{87, 11, 28, 81, 43, 11, 43}, -2.40873f, false},
       {{87, 11, 28, 81, 61, 27, 11}, -2.43586f, false}}}},
};

/// With texts that are complete: a stopping criterion of these ends, and allowed tokens with as
/// many new tokens as digits.
const std::vector<std::string> kRecordedStops{"\x10", "[", "=#", "\x0b\x08", "Q"};
const std::vector<RecordedSearch> kRecordedTexts{
    {{.max_tokens = 12,
      .beams = {4, 3, 1.0, EarlyStopping::no},
      .stop_tokens = kRecordedEnds,
      .stop_strings = kRecordedStops},
     {{{{93, 100, 59, 8, 48, 50, 80, 11, 14, 63, 13, 11}, -2.39053f, false},
       {{63, 16}, -2.39133f, false, true},
       {{93, 100, 59, 8, 48, 50, 80, 11, 14, 34, 73, 86}, -2.39998f, false}},
      {{{14}, -2.0291f, true}, {{14, 5}, -2.25752f, true}, {{14, 91}, -2.33199f, false, true}},
      {{{87, 11, 28, 26, 8}, -2.38698f, true},
       {{87, 11, 28, 81}, -2.39174f, false, true},
       {{87, 11, 64, 28, 5, 25, 56, 77, 35, 14}, -2.3966f, true}}}},
    {{.max_tokens = 9, .beams = {3, 3, 0.5, EarlyStopping::never}, .stop_strings = kRecordedStops},
     {{{{63, 16}, -3.38185f, false, true},
       {{70, 4, 60, 5, 57, 8, 85, 73, 73}, -7.31298f, false},
       {{70, 4, 60, 5, 57, 8, 35, 85, 70}, -7.36852f, false}},
      {{{14, 91}, -3.29793f, false, true},
       {{14, 85, 59, 85, 76, 11, 74, 80, 13}, -6.41291f, false},
       {{14, 85, 59, 85, 76, 11, 74, 80, 41}, -6.46565f, false}},
      {{{50, 91}, -4.33577f, false, true},
       {{87, 11, 16}, -4.64957f, false, true},
       {{87, 11, 28, 81}, -4.78348f, false, true}}}},
    {{.max_tokens = 30, .beams = {4, 4}, .form = R"({"regex": "[0-9]{5}"})"},
     {{{{55, 49, 57, 49, 51}, -3.73101f, false, true},
       {{55, 53, 50, 48, 49}, -3.78007f, false, true},
       {{55, 49, 57, 49, 52}, -3.86347f, false, true},
       {{55, 53, 53, 50, 48}, -3.88769f, false, true}},
      {{{51, 52, 48, 50, 51}, -2.83819f, false, true},
       {{51, 52, 48, 50, 50}, -3.06316f, false, true},
       {{51, 52, 48, 50, 52}, -3.09874f, false, true},
       {{51, 52, 48, 51, 55}, -3.15914f, false, true}},
      {{{53, 53, 50, 55, 53}, -3.23365f, false, true},
       {{53, 50, 55, 50, 49}, -3.25185f, false, true},
       {{53, 50, 53, 50, 49}, -3.32689f, false, true},
       {{53, 53, 50, 55, 55}, -3.41849f, false, true}}}}};

/// Log-probabilities of the tokens of the best text of kRecorded's first search:
/// compute_transition_scores() of transformers.
const std::vector<std::vector<float>> kRecordedScores{
    {-2.62898f, -2.15368f, -2.19121f, -2.45933f, -2.4827f, -2.11932f, -2.32743f, -1.88815f,
     -2.30552f},
    {-2.1094f},
    {-3.08073f, -2.09231f, -2.20538f, -2.18853f, -2.32709f, -2.99298f, -1.60994f, -2.89404f,
     -1.8042f, -2.06916f, -2.67637f, -1.75587f}};

ModelConfig recorded_model() {
  return {.family = ModelFamily::llama,
          .layers = 2,
          .hidden = 48,
          .heads = 12,
          .kv_heads = 4,
          .ffn = 96,
          .vocab = 101,
          .positions = 64,
          .tied = false,
          .attention_scale = 0.5,
          .logit_scale = 0.125};
}

/// A folder with the model, and a config that reads it.
struct RecordedModel {
  test::TemporaryPath folder;
  Config config;

  RecordedModel() {
    const ModelConfig sizes = resolved(recorded_model(), 0, 0);
    test::write_model(folder.path(), sizes, {.type = StoredType::f32});
    test::spill(folder.path() + "/config.json", to_hugging_face_config(sizes, {}));
    config.model = read_hugging_face_config(folder.path());
    config.model.path = folder.path();
  }
};

class BeamsOf : public testing::TestWithParam<SmallModel> {};

}  // namespace

TEST(BeamSearch, KeepsTheBestOfTheTextsThatEnded) {
  BeamSearch search({.options = {.beams = 2, .returned = 2}, .ends = {9, 9}, .longest = 3});
  EXPECT_EQ(search.candidates(), 3);
  search.step(std::vector<BeamSearch::Candidates>{{{1, -0.5f}, {9, -1}, {2, -2}}});
  ASSERT_EQ(search.ended().size(), 1U);
  EXPECT_THAT(search.ended()[0].tokens, ElementsAre());
  EXPECT_EQ(search.ended()[0].score, -1);
  EXPECT_THAT(search.running()[0].tokens, ElementsAre(1));
  EXPECT_THAT(search.running()[1].tokens, ElementsAre(2));
  EXPECT_FALSE(search.done());
  search.step(std::vector<BeamSearch::Candidates>{{{3, -0.25f}, {4, -0.5f}, {9, -4}},
                                                  {{9, -0.125f}, {3, -3}, {4, -4}}});
  EXPECT_EQ(search.ended().size(), 1U) << "the end is the third best, and there are two beams";
  EXPECT_THAT(search.running()[0].tokens, ElementsAre(1, 3));
  EXPECT_THAT(search.running()[1].tokens, ElementsAre(1, 4));
  EXPECT_EQ(search.running()[1].parent, 0U);
  search.step(std::vector<BeamSearch::Candidates>{{{5, -0.75f}, {6, -1}, {9, -2}},
                                                  {{9, -0.25f}, {5, -1}, {6, -2}}});
  EXPECT_TRUE(search.done()) << "the longest text";
  ASSERT_EQ(search.ended().size(), 2U);
  EXPECT_THAT(search.ended()[0].tokens, ElementsAre(1, 4));
  EXPECT_EQ(search.ended()[0].score, -1.25f / 3);
  EXPECT_TRUE(search.ended()[0].by_token);
  EXPECT_THAT(search.ended()[1].tokens, ElementsAre(1, 3, 5));
  EXPECT_EQ(search.ended()[1].score, -0.5f);
  EXPECT_FALSE(search.ended()[1].by_token);
}

TEST(Beams, AreThoseOfTransformersOnEveryGrid) {
  const RecordedModel recorded;
  for (const GridShape& grid : {GridShape{}, {2, 2, 1, 1}, {1, 1, 2, 2}, {4, 1, 1, 1}})
    for (const RecordedSearch& search : kRecorded) {
      SCOPED_TRACE(concat(to_string(grid), ", ", &search - kRecorded.data()));
      with_model(on_grid(recorded.config, grid), [&](LoadedModel& model) {
        Generator generator(model, {});
        const auto got = generator.generate(kRecordedPrompts, search.wanted);
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_found(got[i], search.found[i], search.wanted.beams.returned);
      });
    }
}

TEST(Beams, WithLogProbabilitiesStopStringsAndFormsAreThoseOfTransformers) {
  const RecordedModel recorded;
  for (const GridShape& grid : {GridShape{}, {2, 2, 1, 1}, {1, 1, 2, 2}})
    with_model(on_grid(recorded.config, grid), [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({}));
      for (const RecordedSearch& search : kRecordedTexts) {
        SCOPED_TRACE(concat(to_string(grid), ", ", &search - kRecordedTexts.data()));
        const auto got = generator.generate(kRecordedPrompts, search.wanted);
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_found(got[i], search.found[i], search.wanted.beams.returned);
      }
      GenerationOptions scored = kRecorded.front().wanted;
      scored.likeliest = 0;
      const auto got = generator.generate(kRecordedPrompts, scored);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].scores.size(), kRecordedScores[i].size());
        for (std::size_t t = 0; t < got[i].scores.size(); ++t)
          EXPECT_NEAR(got[i].scores[t].log_probability, kRecordedScores[i][t], 5e-5);
      }
    });
}

TEST_P(BeamsOf, FindTheTextsOfWholePassesOnEveryGridAndInEveryBatch) {
  const Prompts prompts = some_prompts(5);
  for (const EarlyStopping early : {EarlyStopping::no, EarlyStopping::yes, EarlyStopping::never}) {
    GenerationOptions wanted = some_beams();
    wanted.beams.early_stopping = early;
    if (early == EarlyStopping::never) wanted.beams.length_penalty = 0.4;
    const auto want = by_whole_texts(GetParam().sizes(), prompts, wanted);
    for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 2, 1}, {1, 1, 2, 2}})
      for (const std::int64_t batch : {0, 1, 2}) {
        SCOPED_TRACE(concat(to_string(grid), ", batch ", batch, ", ",
                            kEarlyStoppings[static_cast<int>(early)]));
        const auto got =
            generate(config_of(GetParam().sizes(), grid), prompts, wanted, {.batch = batch});
        for (std::size_t i = 0; i < prompts.size(); ++i)
          expect_found(got[i], want[i], wanted.beams.returned);
      }
  }
}

/// Slots must know what a search left in them.
TEST_P(BeamsOf, LeaveSlotsThatLaterTextsMayContinue) {
  const std::vector<std::int32_t> prompt(7, 65);
  const GenerationOptions greedy{.max_tokens = 6}, wanted = some_beams();
  const auto fresh = [&](const std::vector<std::int32_t>& from, const GenerationOptions& options) {
    return generate(config_of(GetParam().sizes()), {from}, options).front();
  };
  std::vector<std::int32_t> longer = prompt;
  const Generation found = fresh(prompt, wanted);
  longer.insert(longer.end(), found.tokens.begin(), found.tokens.end());
  longer.push_back(3);
  with_model(config_of(GetParam().sizes(), {1, 2, 1, 1}), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({}));
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(generator.generate({prompt}, wanted).front().tokens, found.tokens);
      for (const auto& from : {longer, prompt})
        EXPECT_EQ(generator.generate({from}, greedy).front().tokens, fresh(from, greedy).tokens);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, BeamsOf,
                         testing::Values(SmallModel{"Gpt", gpt}, SmallModel{"Opt", opt},
                                         SmallModel{"Llama", llama}, SmallModel{"Mistral", mistral},
                                         SmallModel{"Phi3", phi3}, SmallModel{"DeepSeek", deepseek},
                                         SmallModel{"Gemma4", gemma4},
                                         SmallModel{"Qwen35", qwen3_5}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Beams, RunBesideTextsThatAreDrawnAndCanBeCancelled) {
  const Prompts prompts = some_prompts(4);
  const GenerationOptions beams = some_beams(), greedy{.max_tokens = 9};
  const Config config = config_of(llama());
  const auto texts = tokens_of(generate(config, prompts, greedy)),
             found = tokens_of(generate(config, prompts, beams));
  with_model(config_of(llama(), {2, 1, 2, 1}), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.batch = 5}));
    generator.reserve(10);
    EXPECT_EQ(generator.most_beams(), 5);
    std::map<std::size_t, std::vector<std::int32_t>> want;
    std::vector<std::size_t> cancelled;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      want[generator.add(prompts[i], greedy)] = texts[i];
      want[generator.add(prompts[i], beams)] = found[i];
      cancelled.push_back(generator.add(prompts[i], beams));
    }
    std::size_t ended = 0, steps = 0;
    while (!generator.idle()) {
      if (steps % 3 == 2 && steps / 3 < cancelled.size()) generator.cancel(cancelled[steps / 3]);
      if (steps++ == 0) generator.cancel(cancelled[3]);
      generator.step({}, [&](std::size_t number, const Generation& result) {
        if (!want.contains(number)) return;
        EXPECT_EQ(result.tokens, want[number]) << number;
        ++ended;
      });
    }
    EXPECT_EQ(ended, want.size());
  });
}

TEST(Beams, HeedTheLeastNumberOfTokensPenaltiesAndBiases) {
  const Prompts prompts = some_prompts(3);
  GenerationOptions wanted = some_beams();
  wanted.min_tokens = 9;
  for (const Generation& text : generate(config_of(llama()), prompts, wanted)) {
    EXPECT_GE(text.tokens.size(), 9U);
    for (const Generation& other : text.others) EXPECT_GE(other.tokens.size(), 9U);
  }
  wanted.logit_bias = {{70, 100.0f}};
  for (const Generation& text : generate(config_of(llama()), prompts, wanted))
    EXPECT_EQ(text.tokens.front(), 70);
}

/// The texts of a search with these rules, on grids; returns the first grid's.
std::vector<Generation> expect_texts(const GenerationOptions& wanted, const TextRules& rules) {
  const Prompts prompts = some_prompts(3);
  const auto want = by_whole_texts(llama(), prompts, wanted, rules);
  std::vector<Generation> first;
  for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 2, 1}, {1, 1, 2, 2}})
    for (const std::int64_t batch : {0, 1}) {
      SCOPED_TRACE(concat(to_string(grid), ", batch ", batch));
      const auto got = generate(config_of(llama(), grid), prompts, wanted, {.batch = batch});
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(std::ssize(got[i].others) + 1, wanted.beams.returned);
        const auto expect = [&](const Generation& text, const BeamSearch::Ended& is) {
          EXPECT_EQ(text.tokens, is.tokens);
          EXPECT_NEAR(text.beam_score, is.score, 2e-5 * (1 + std::abs(is.score)));
          EXPECT_EQ(
              text.reason == FinishReason::stop_token || text.reason == FinishReason::stop_string,
              is.by_token || is.complete);
        };
        expect(got[i], want[i].front());
        for (std::size_t k = 0; k < got[i].others.size(); ++k)
          expect(got[i].others[k], want[i][k + 1]);
      }
      if (first.empty()) first = got;
    }
  return first;
}

TEST(Beams, EndAtStopStringsThatAreNotShown) {
  // Each is one of many that texts of these models come to.
  GenerationOptions wanted = some_beams();
  for (char c = 'a'; c < 'q'; ++c) wanted.stop_strings.push_back({c});
  wanted.stop_strings.push_back("ZZ");
  const auto ends = [&](const std::string& text) {
    return std::ranges::any_of(wanted.stop_strings,
                               [&](const std::string& stop) { return text.ends_with(stop); });
  };
  int stopped = 0;
  for (const Generation& best : expect_texts(wanted, {.completes = ends})) {
    std::vector<Generation> all = best.others;
    all.push_back(best);
    for (const Generation& text : all) {
      if (text.reason != FinishReason::stop_string) continue;
      ++stopped;
      EXPECT_EQ(text.text + text.stop, bytes_as_text(text.tokens));
    }
  }
  EXPECT_GT(stopped, 2);
}

TEST(Beams, StayWithinAFormAndEndWithIt) {
  GenerationOptions wanted = some_beams();
  wanted.form = R"({"regex": "[0-9]{5}"})";
  const auto digit = [](const std::string&, char next) { return next >= '0' && next <= '9'; };
  wanted.stop_tokens.clear();
  for (const Generation& text :
       expect_texts(wanted, {.allows = digit,
                            .completes = [](const std::string& text) { return text.size() == 5; }}))
    EXPECT_EQ(text.text.size(), 5U);

  // Fewer texts than beams, until there are more.
  wanted.beams.returned = 1;
  wanted.form = R"({"regex": "ab[01]{3}"})";
  const auto allows = [&](const std::string& text, char next) {
    return text.empty() ? next == 'a' : text.size() == 1 ? next == 'b' : next == '0' || next == '1';
  };
  for (const Generation& text :
       expect_texts(wanted, {.allows = allows,
                            .completes = [](const std::string& text) { return text.size() == 5; }}))
    EXPECT_EQ(text.reason, FinishReason::stop_token);

  // Tokens that end a text come where the form may end.
  wanted = some_beams();
  wanted.form = R"({"regex": "[a-c]+"})";
  expect_texts(
      wanted, {.allows = [](const std::string&, char next) { return next >= 'a' && next <= 'c'; }});
}

TEST(Beams, HaveTheLogProbabilitiesOfTheirTokensAndTheLikeliestBesideThem) {
  const Prompts prompts = some_prompts(3);
  GenerationOptions wanted = some_beams();
  wanted.likeliest = 2;
  wanted.sampling.repetition_penalty = 1.2;  // not in them
  for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 2, 1}})
    with_model(config_of(llama(), grid), [&](LoadedModel& model) {
      Generator generator(model, with_tokenizer({}));
      const auto found = generator.generate(prompts, wanted);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        std::vector<Generation> all = found[i].others;
        all.push_back(found[i]);
        for (const Generation& text : all) {
          std::vector<std::int32_t> whole = prompts[i];
          whole.insert(whole.end(), text.tokens.begin(), text.tokens.end());
          const auto scores =
              generator.generate({whole}, {.max_tokens = 0, .likeliest = 2, .score_prompt = true})
                  .front()
                  .prompt_scores;
          ASSERT_EQ(text.scores.size(), text.tokens.size());
          for (std::size_t t = 0; t < text.scores.size(); ++t) {
            const TokenScore& want = scores[prompts[i].size() - 1 + t];
            EXPECT_NEAR(text.scores[t].log_probability, want.log_probability, 2e-5);
            ASSERT_EQ(text.scores[t].likeliest.size(), 2U);
            for (std::size_t k = 0; k < 2; ++k) {
              EXPECT_EQ(text.scores[t].likeliest[k].first, want.likeliest[k].first);
              EXPECT_NEAR(text.scores[t].likeliest[k].second, want.likeliest[k].second, 2e-5);
            }
          }
        }
      }
    });
}

TEST(Beams, EndWhereTheContextIsFull) {
  const std::vector<std::int32_t> prompt(kContext - 4, 65);
  const Generation text =
      generate(config_of(llama()), {prompt}, {.max_tokens = 30, .beams = {.beams = 3}}).front();
  EXPECT_EQ(text.reason, FinishReason::context);
  EXPECT_EQ(text.tokens.size(), 5U);
}

TEST(Beams, RefuseWhatIsNotOfASearch) {
  with_model(config_of(llama()), [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.batch = 2}));
    const auto refusal = [&](GenerationOptions wanted) -> std::string {
      try {
        generator.check({65}, wanted);
      } catch (const UsageError& error) {
        return error.what();
      }
      return "none";
    };
    GenerationOptions wanted{.beams = {.beams = 2}};
    EXPECT_EQ(refusal(wanted), "none");
    wanted.sampling.temperature = 1;
    EXPECT_THAT(refusal(wanted), HasSubstr("set the temperature to 0"));
    EXPECT_THAT(refusal({.beams = {.beams = 2, .returned = 3}}), HasSubstr("at most as many"));
    EXPECT_THAT(refusal({.beams = {.length_penalty = 2}}), HasSubstr("set more than one beam"));
    EXPECT_THAT(refusal({.beams = {.beams = 2}, .likeliest = 0, .score_prompt = true}),
                HasSubstr("scores of the prompt"));
    EXPECT_THAT(refusal({.beams = {.beams = 2}, .slides = true}), HasSubstr("slides"));
    EXPECT_THAT(refusal({.beams = {.beams = 300}}), HasSubstr("needs 300 tokens"));
    generator.reserve(1);
    EXPECT_THAT([&] { generator.add({65}, {.beams = {.beams = 2}}); },
                ThrowsMessage<UsageError>(HasSubstr("there are 1; take fewer beams")));
  });
}
