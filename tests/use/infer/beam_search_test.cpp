// Beam search on every grid, compared with transformers and with a search that computes the whole
// text of every beam again for every token on one rank.
#include "axonn/use/infer/beam_search.h"

#include <algorithm>
#include <cmath>
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
    all.emplace_back(token, static_cast<float>(logits[token] - std::log(sum)));
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.second > b.second; });
  all.resize(count);
  return all;
}

/// What the search finds if every text is computed whole.
std::vector<std::vector<BeamSearch::Ended>> by_whole_texts(const ModelConfig& sizes,
                                                           const Prompts& prompts,
                                                           const GenerationOptions& wanted) {
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
          candidates.push_back(likeliest({logits.view().as<float>(), 256}, search.candidates()));
        }
        search.step(candidates);
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
    EXPECT_EQ(text.reason == FinishReason::stop_token, want[i].by_token) << i;
    if (!text.text.empty()) {
      EXPECT_EQ(text.text, std::string(text.tokens.begin(), text.tokens.end()));
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
  const ModelConfig sizes = resolved(recorded_model(), 0, 0);
  const test::TemporaryPath folder;
  test::write_model(folder.path(), sizes, {.type = StoredType::f32});
  test::spill(folder.path() + "/config.json", to_hugging_face_config(sizes, {}));
  Config config{.model = read_hugging_face_config(folder.path())};
  config.model.path = folder.path();
  for (const GridShape& grid : {GridShape{}, {2, 2, 1, 1}, {1, 1, 2, 2}, {4, 1, 1, 1}})
    for (const RecordedSearch& search : kRecorded) {
      SCOPED_TRACE(concat(to_string(grid), ", ", &search - kRecorded.data()));
      config.parallelism.set_grid(grid);
      with_model(config, [&](LoadedModel& model) {
        Generator generator(model, {});
        const auto got = generator.generate(kRecordedPrompts, search.wanted);
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_found(got[i], search.found[i], search.wanted.beams.returned);
      });
    }
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
                                         SmallModel{"Phi3", phi3}, SmallModel{"Gemma4", gemma4},
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
    EXPECT_THAT(refusal({.beams = {.beams = 2}, .likeliest = 0}), HasSubstr("log-probabilities"));
    EXPECT_THAT(refusal({.beams = {.beams = 2}, .stop_strings = {"a"}}), HasSubstr("stop strings"));
    EXPECT_THAT(refusal({.beams = {.beams = 2}, .slides = true}), HasSubstr("slides"));
    EXPECT_THAT(refusal({.beams = {.beams = 300}}), HasSubstr("needs 300 tokens"));
    generator.reserve(1);
    EXPECT_THAT([&] { generator.add({65}, {.beams = {.beams = 2}}); },
                ThrowsMessage<UsageError>(HasSubstr("there are 1; take fewer beams")));
  });
}
