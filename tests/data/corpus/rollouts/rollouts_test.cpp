#include <cmath>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/data/corpus/rollouts/rollout_lines.h"
#include "axonn/data/corpus/rollouts/rollout_sequences.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

namespace {

class RolloutLines : public testing::Test {
 protected:
  RolloutFile read(const std::string& text, std::int64_t group = 1) {
    std::ofstream(folder_ / "answers.jsonl") << text;
    return read_rollouts({folder_ / "answers.jsonl"}, {.tokenizer = make_tokenizer("bytes")},
                         {.vocab = 256, .ends = {10}}, group);
  }
  void expect_refusal(const std::string& text, const std::string& why, std::int64_t group = 1) {
    EXPECT_THAT([&] { read(text, group); }, ThrowsMessage<UsageError>(HasSubstr(why))) << text;
  }

  test::TemporaryPath folder_;
};

RolloutFile answers_of(int count) {
  RolloutFile file{.reward_names = {"reward"}};
  for (int i = 0; i < count; ++i)
    file.answers.push_back(
        {.prompt = {1, 2}, .answer = {10 + i, 20 + i}, .counts = {1, 1}, .rewards = {1.0 * i}});
  return file;
}

}  // namespace

TEST_F(RolloutLines, HaveTokensRewardsAndWhatIsKnownOfThem) {
  const RolloutFile file = read(
      "{\"prompt\": \"ab\", \"completion_ids\": [99, 100, 10], \"rewards\": {\"right\": 1, "
      "\"form\": null}, \"mask\": [1, 0, 1], \"logprobs\": [-0.5, null, -2], \"id\": 3}\n"
      "\n"
      "{\"prompt_ids\": [97], \"completion_ids\": [99], \"rewards\": {\"right\": 0.5, \"form\": "
      "2}}\n");
  EXPECT_THAT(file.reward_names, ElementsAre("right", "form"));
  ASSERT_EQ(file.answers.size(), 2);
  const Rollout& first = file.answers[0];
  EXPECT_THAT(first.prompt, ElementsAre(97, 98));
  EXPECT_THAT(first.answer, ElementsAre(99, 100, 10));
  EXPECT_THAT(first.counts, ElementsAre(1, 0, 1));
  EXPECT_EQ(first.rewards[0], 1);
  EXPECT_TRUE(std::isnan(first.rewards[1]));
  EXPECT_EQ(first.sampler[2], -2);
  EXPECT_TRUE(std::isnan(first.sampler[1]));
  EXPECT_FALSE(first.truncated);
  EXPECT_THAT(file.answers[1].prompt, ElementsAre(97));
  EXPECT_THAT(file.answers[1].sampler, IsEmpty());
  EXPECT_TRUE(file.answers[1].truncated) << "its last token is no end";
}

TEST_F(RolloutLines, MayHaveTheAnswerAsATextAndOneReward) {
  const RolloutFile file =
      read("{\"prompt\": \"ab\", \"completion\": \"cd\", \"reward\": 2, \"truncated\": false}\n");
  EXPECT_THAT(file.reward_names, ElementsAre("reward"));
  EXPECT_THAT(file.answers[0].prompt, ElementsAre(97, 98));
  EXPECT_THAT(file.answers[0].answer, ElementsAre(99, 100));
  EXPECT_FALSE(file.answers[0].truncated) << "the line says so";
}

TEST_F(RolloutLines, AreRefusedWithTheirPlace) {
  const std::string good = R"({"prompt": "a", "completion_ids": [99], "reward": 1})";
  expect_refusal(R"({"prompt": "a", "completion_ids": [99]})", "neither \"rewards\"");
  expect_refusal(R"({"completion_ids": [99], "reward": 1})", "there is no \"prompt\"");
  expect_refusal(R"({"prompt": "a", "reward": 1})", "there is no \"completion_ids\"");
  expect_refusal(R"({"prompt": "a", "completion_ids": [], "reward": 1})", "answer has no token");
  expect_refusal(R"({"prompt": "a", "completion_ids": [256], "reward": 1})", "the token 256");
  expect_refusal(R"({"prompt": "a", "completion_ids": ["b"], "reward": 1})", "no token");
  expect_refusal(R"({"prompt": "a", "completion_ids": [99], "reward": "1"})", "neither a number");
  expect_refusal(R"({"prompt": "a", "completion_ids": [99], "reward": 1, "mask": [1, 1]})",
                 "\"mask\" has 2 values");
  expect_refusal(R"({"prompt": "a", "completion_ids": [99], "reward": 1, "logprobs": [0.5]})",
                 "above log 1");
  expect_refusal(good + "\n" + R"({"prompt": "a", "completion_ids": [99], "rewards": {"b": 1}})",
                 "answers.jsonl:2");
  expect_refusal(good + "\n" + R"({"prompt": "b", "completion_ids": [99], "reward": 1})",
                 "its prompt is not that of answer 1", 2);
  expect_refusal(good + "\n" + good + "\n" + good, "no groups of rl.group = 2", 2);
}

TEST(RolloutSequences, TakeTheAnswersOfAGenerationPartByPartAndAgain) {
  const auto file = std::make_shared<const RolloutFile>(answers_of(9));
  const RolloutSequences all(file, 8, {.answers = 2, .parts = 2, .iterations = 2});
  EXPECT_EQ(all.count(), 16) << "two generations of four answers, twice each";
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = 0; n < 20; ++n) numbers.push_back(all.own_number(n));
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_THAT(all.notes(), ElementsAre(HasSubstr("the last 1 of 9 answers are left out")));
  Sequence sequence;
  all.read(9, sequence);
  EXPECT_THAT(std::vector(sequence.ids.begin(), sequence.ids.begin() + 3), ElementsAre(1, 2, 15));
  EXPECT_THAT(std::vector(sequence.targets.begin(), sequence.targets.begin() + 4),
              ElementsAre(-1, 15, 25, kPaddingTarget));
}

TEST(RolloutSequences, RefuseLongAnswersAndFewOnes) {
  const auto file = std::make_shared<const RolloutFile>(answers_of(3));
  EXPECT_THAT([&] { RolloutSequences(file, 2, {.answers = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("raise seq_len")));
  EXPECT_THAT([&] { RolloutSequences(file, 8, {.answers = 4}); },
              ThrowsMessage<UsageError>(HasSubstr("a generation has 4")));
}

TEST(TextOfAnswer, LeavesOutTokensThatTheTokenizerDoesNotHave) {
  EXPECT_EQ(text_of_answer(*make_tokenizer("bytes"), {97, 256, 98, 300}), "ab");
}
