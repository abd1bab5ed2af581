// Texts whose passes compute drafts: the tokens of texts without.
#include "axonn/use/infer/drafts.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/prepared_run.h"

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

/// Drafts of at most so many tokens, which a model writes or which are looked up.
struct Drafting {
  std::int64_t most;
  const Config* writer;

  Drafting(std::int64_t tokens, const Config* model = nullptr)  // NOLINT: of a number alone
      : most(tokens), writer(model) {}
};

/// Compares texts with drafts with those without, and returns how many tokens of drafts were drawn.
std::int64_t compare(const Config& config, const Prompts& prompts, const GenerationOptions& wanted,
                     Generator::Options options, const Drafting& drafting) {
  const std::vector<Generation> want = generate(config, prompts, wanted, options);
  std::int64_t kept = 0;
  options.drafts = drafting.most;
  with_model(config, [&](LoadedModel& model) {
    std::unique_ptr<LoadedModel> other;
    Generator::Options mine = with_tokenizer(options);
    if (drafting.writer) {
      other = std::make_unique<LoadedModel>(prepared_model(*drafting.writer), model.grid().world());
      other->initialise();
      mine.draft_model = other.get();
    }
    Generator generator(model, mine);
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

TEST(DraftModel, DoesNotChangeTheTextOfAnyFamilyOnAnyGrid) {
  for (const auto& sizes : {gpt(), llama(), mistral(), phi3(), deepseek(), gemma4(), mixtral()})
    for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}, {1, 1, 3, 1}}) {
      SCOPED_TRACE(to_string(grid));
      Config smaller = config_of(qwen3(), grid);
      smaller.model.layers = 1;
      EXPECT_GT(
          compare(config_of(sizes, grid), some_prompts(5), of_three_tokens(24), {}, {6, &smaller}),
          0);
    }
}

/// The model itself is right, but for rounding, so that each pass has a token more.
TEST(DraftModel, ThatIsTheModelItselfIsRight) {
  const Prompts prompts = some_prompts(5);
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}}) {
    const Config config = config_of(llama(), grid);
    for (const std::int64_t batch : {1, 3, 5})
      EXPECT_GE(compare(config, prompts, {.max_tokens = 24}, {.batch = batch}, {2, &config}),
                5 * 24 / 2 - 5);
    EXPECT_GE(
        compare(config, prompts, {.max_tokens = 24}, {.kept = {Quantization::q8_0}}, {2, &config}),
        5 * 24 / 2 - 5)
        << "with codes";
  }
}

TEST(DraftModel, DoesNotChangeWhatIsDrawn) {
  const Config config = config_of(llama()), writer = config_of(gpt());
  GenerationOptions wanted = of_three_tokens(27);
  wanted.sampling = {.temperature = 0.7, .top_k = 3};
  wanted.sampling.repetition_penalty = 1.1;
  for (wanted.seed = 1; wanted.seed < 6; ++wanted.seed)
    for (const std::int64_t batch : {1, 3})
      EXPECT_GT(compare(config, some_prompts(5), wanted, {.batch = batch}, {8, &writer}), 0);
}

/// Where its positions end it writes nothing, and where the context of the text is full it reads
/// the rest anew.
TEST(DraftModel, WritesAsFarAsItCan) {
  Config few = config_of(gpt());
  few.model.positions = 16;
  GenerationOptions wanted = of_three_tokens(30);
  EXPECT_GT(compare(config_of(llama()), some_prompts(5), wanted, {}, {8, &few}), 0);
  wanted.slides = true;
  EXPECT_GT(compare(config_of(mistral()), some_prompts(6), wanted, {.context = 12}, {8, &few}), 0);
  wanted.stop_strings = {"\x03\x07"};
  compare(config_of(llama()), some_prompts(5), wanted, {}, {8, &few});
}

TEST(DraftModel, IsRefusedIfItsStatesCannotBeTakenBack) {
  with_model(config_of(llama()), [&](LoadedModel& model) {
    LoadedModel writer(prepared_model(config_of(qwen3_5())), model.grid().world());
    writer.initialise();
    Generator generator(model, with_tokenizer({.drafts = 4, .draft_model = &writer}));
    EXPECT_THAT([&] { generator.reserve(1); },
                testing::ThrowsMessage<UsageError>(
                    testing::HasSubstr("--draft: a model with DeltaNet layers")));
  });
}
