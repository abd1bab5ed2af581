// Texts whose passes compute drafts: the tokens of texts without.
#include "axonn/use/infer/drafts.h"

#include <gmock/gmock.h>

#include "tests/use/infer/generator_models.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

/// Texts of three tokens alone, which repeat and often do not go on as they did before.
GenerationOptions of_three_tokens(std::int64_t count) {
  return {.max_tokens = count, .logit_bias = {{3, 50.0f}, {7, 50.0f}, {11, 50.0f}}};
}

/// Compares texts with drafts of at most `most` tokens with those without, and returns how many
/// tokens of drafts were drawn.
std::int64_t compare(const Config& config, const Prompts& prompts, const GenerationOptions& wanted,
                     Generator::Options options, std::int64_t most) {
  const std::vector<Generation> want = generate(config, prompts, wanted, options);
  std::int64_t kept = 0;
  options.drafts = most;
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer(options));
    const std::vector<Generation> got = generator.generate(prompts, wanted);
    if (model.grid().world().rank() != 0) return;
    const GenerationStats& stats = generator.stats();
    EXPECT_LE(stats.kept, stats.drafted);
    kept = stats.kept;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
      EXPECT_EQ(got[i].text, want[i].text) << i;
      EXPECT_EQ(got[i].reason, want[i].reason) << i;
      EXPECT_EQ(got[i].slid, want[i].slid) << i;
    }
  });
  return kept;
}

}  // namespace

TEST(Drafts, AreWhatFollowedTheSameTokens) {
  const std::vector<std::int32_t> text{1, 2, 3, 4, 5, 9, 3, 4, 6, 7, 2, 3, 4};
  EXPECT_THAT(tokens_after_same(text, 3), ElementsAre(5, 9, 3)) << "three tokens beat two later";
  EXPECT_THAT(tokens_after_same(text, 12), ElementsAre(5, 9, 3, 4, 6, 7, 2, 3, 4, 5, 9, 3));
  EXPECT_THAT(tokens_after_same(std::span(text).first(8), 2), ElementsAre(5, 9));
  EXPECT_THAT(tokens_after_same(std::span(text).first(7), 2), IsEmpty()) << "one token is no sign";
  EXPECT_THAT(tokens_after_same(std::vector{5, 5, 5}, 4), ElementsAre(5, 5, 5, 5));
  EXPECT_THAT(tokens_after_same(std::vector{5}, 4), IsEmpty());
  EXPECT_THAT(tokens_after_same({}, 4), IsEmpty());
}

TEST(Drafts, GrowWhileTheyAreRight) {
  EXPECT_EQ(next_draft_length(2, 2, 16), 4);
  EXPECT_EQ(next_draft_length(12, 12, 16), 16);
  EXPECT_EQ(next_draft_length(8, 3, 16), 4);
  EXPECT_EQ(next_draft_length(1, 0, 16), 1);
}

TEST(Drafts, DoNotChangeTheTextOfAnyFamilyOnAnyGrid) {
  for (const auto& sizes : {gpt(), llama(), mistral(), olmo3(), phi3(), chunks(), llama4(),
                            deepseek(), gemma4(), mixtral()})
    for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}, {1, 1, 3, 1}}) {
      SCOPED_TRACE(to_string(grid));
      const std::int64_t kept =
          compare(config_of(sizes, grid), some_prompts(5), of_three_tokens(24), {}, 6);
      EXPECT_GT(kept, 5);
    }
}

TEST(Drafts, DoNotChangeWhatIsDrawn) {
  GenerationOptions wanted = of_three_tokens(27);
  wanted.sampling = {.temperature = 0.7, .top_k = 3};
  wanted.sampling.repetition_penalty = 1.1;
  for (wanted.seed = 1; wanted.seed < 6; ++wanted.seed)
    for (const std::int64_t batch : {1, 3})
      EXPECT_GT(compare(config_of(llama()), some_prompts(5), wanted, {.batch = batch}, 8), 5);
}

TEST(Drafts, EndWhereTheTextEnds) {
  GenerationOptions stopped = of_three_tokens(30), written = stopped;
  stopped.stop_tokens = {11};
  stopped.keeps_stop_token = true;
  compare(config_of(llama()), some_prompts(6), stopped, {}, 8);
  stopped.stop_tokens = {};
  stopped.stop_strings = {"\x03\x07", "\x0b\x0b\x03"};
  compare(config_of(llama()), some_prompts(6), stopped, {}, 8);
  written.form = R"({"regex": "[a-c]{5}(ab|ba){4}c*"})";
  written.logit_bias = {};
  EXPECT_GT(compare(config_of(llama()), some_prompts(6), written, {}, 8), 2);
}

TEST(Drafts, DoNotChangeWhatComesAfterAFullContext) {
  for (const auto& sizes : {llama(), mistral(), phi3()}) {
    GenerationOptions wanted = of_three_tokens(40);
    EXPECT_GT(compare(config_of(sizes), some_prompts(3), wanted, {.context = 20}, 8), 0);
    wanted.slides = true;
    EXPECT_GT(compare(config_of(sizes), some_prompts(6), wanted, {.context = 12}, 8), 0);
  }
}

TEST(Drafts, AreNotMadeWhereTheyWouldNotDo) {
  GenerationOptions wanted = of_three_tokens(20);
  EXPECT_EQ(compare(config_of(qwen3_5()), some_prompts(3), wanted, {}, 8), 0)
      << "states of DeltaNet";
  wanted.likeliest = 2;
  EXPECT_EQ(compare(config_of(llama()), some_prompts(3), wanted, {}, 8), 0) << "scores";
  wanted.likeliest = -1;
  wanted.beams.beams = 2;
  EXPECT_EQ(compare(config_of(llama()), some_prompts(3), wanted, {}, 8), 0) << "beams";
}

/// Slots that texts with drafts leave serve the next prompts.
TEST(Drafts, LeaveSlotsThatHoldWhatTheySay) {
  const Config config = config_of(llama());
  const GenerationOptions wanted = of_three_tokens(12);
  const Prompts first = some_prompts(4);
  Prompts next = first;
  const std::vector<Generation> before = generate(config, first, wanted);
  for (std::size_t i = 0; i < next.size(); ++i)
    next[i].insert(next[i].end(), before[i].tokens.begin(), before[i].tokens.end());
  const Continuations want = tokens_of(generate(config, next, wanted));
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer({.batch = 4, .drafts = 8}));
    generator.generate(first, wanted);
    const auto got = generator.generate(next, wanted);
    EXPECT_EQ(tokens_of(got), want);
    EXPECT_GT(got[3].cached_tokens, 0);
  });
}
