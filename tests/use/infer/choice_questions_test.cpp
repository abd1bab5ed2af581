#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/use/infer/multiple_choice.h"

#include "tests/data/text/small_bpe.h"
#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

ChoiceQuestion one(const std::string& answer) {
  return parse_choice_questions(
             R"({"question": "Q", "choices": ["x", "B", "zz"], "answer": )" + answer + "}", "f")
      .front();
}

void expect_refused(const std::string& text, const std::string& why) {
  EXPECT_THAT([&] { parse_choice_questions(text, "f"); }, ThrowsMessage<UsageError>(HasSubstr(why)))
      << text;
}

/// The text of the scored tokens.
std::string scored(const Tokenizer& tokenizer, const ScoredSequence& text) {
  std::string result;
  for (auto token = text.tokens.end() - text.scored; token != text.tokens.end(); ++token)
    result += tokenizer.bytes_of(*token);
  return result;
}

}  // namespace

TEST(ChoiceQuestions, AnswersAreIndicesTextsOrLettersAndATextIsPreferredToALetter) {
  EXPECT_EQ(one("0").answer, 0);
  EXPECT_EQ(one("2").answer, 2);
  EXPECT_EQ(one("\"zz\"").answer, 2);
  EXPECT_EQ(one("\"A\"").answer, 0);
  EXPECT_EQ(one("\"C\"").answer, 2);
  EXPECT_EQ(one("\"B\"").answer, 1);  // by its text and by its letter
  EXPECT_EQ(parse_choice_questions(R"({"question":"","choices":["B","A"],"answer":"B"})", "f")
                .front()
                .answer,
            0);
}

TEST(ChoiceQuestions, OtherKeysAndEmptyLinesAreIgnored) {
  const auto questions = parse_choice_questions(
      "\n{\"question\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1, \"subject\": 3}\r\n \n"
      "{\"question\": \"d\", \"choices\": [\"e\", \"f\"], \"answer\": 0}",
      "f");
  EXPECT_THAT(questions,
              ElementsAre(ChoiceQuestion{"a", {"b", "c"}, 1}, ChoiceQuestion{"d", {"e", "f"}, 0}));
}

TEST(ChoiceQuestions, AnInvalidQuestionIsRefusedWithItsLine) {
  expect_refused("", "f holds no questions");
  expect_refused("{}", "f:1: there is no \"question\"");
  expect_refused("\n[1]", "f:2: this is not a JSON object");
  expect_refused("{\"question\": \"a\"", "f:1: this is not a JSON object");
  expect_refused(R"({"question": 1})", "f:1: question: wanted a string");
  expect_refused(R"({"question": "a", "choices": ["b"], "answer": 0})", "at least two");
  expect_refused(R"({"question": "a", "choices": ["b", 7], "answer": 0})", "wanted a string");
  expect_refused(R"({"question": "a", "choices": ["b", ""], "answer": 0})", "one is empty");
  expect_refused(R"({"question": "a", "choices": ["b", "c"]})", "there is no \"answer\"");
  for (const char* answer : {"2", "-1", "1.0", "\"C\"", "\"d\"", "null", "[0]"})
    expect_refused(
        std::string(R"({"question": "a", "choices": ["b", "c"], "answer": )") + answer + "}",
        "none of its 2 choices");
}

TEST(Continuation, HasTheTokensOfTheWholeAfterThoseOfTheContext) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(small_bpe(folder));
  const ScoredSequence text = encode_continuation(*tokenizer, "hello", " world");
  // " wor", "ld" after "hello".
  EXPECT_THAT(text.tokens, ElementsAre(259, 262, 263));
  EXPECT_EQ(text.scored, 2);
}

TEST(Continuation, SpacesAtTheEndOfTheContextBelongToTheContinuation) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(small_bpe(folder));
  const ScoredSequence text = encode_continuation(*tokenizer, "hello \n", "x");
  EXPECT_EQ(text.tokens.front(), 259);
  EXPECT_EQ(scored(*tokenizer, text), " \nx");
  EXPECT_EQ(scored(*tokenizer, encode_continuation(*tokenizer, "hello ", "world")), " world");
}

TEST(Continuation, BeginsWithBeginOfTextOrAfterAnEmptyContextWithEndOfText) {
  const TempFolder small, llama;
  const auto gpt2 = make_tokenizer(small_bpe(small));
  EXPECT_THAT(encode_continuation(*gpt2, "", "he").tokens, ElementsAre(kSmallEnd, 256));
  EXPECT_EQ(encode_continuation(*gpt2, " ", "he").scored,
            2);  // the space belongs to the continuation
  const auto llama3 = make_tokenizer(llama.file("tokenizer.json", llama3_json()));
  ASSERT_EQ(llama3->begin_of_text().size(), 1);
  for (const char* context : {"a", ""}) {
    const ScoredSequence text = encode_continuation(*llama3, context, " b");
    EXPECT_EQ(text.tokens.front(), llama3->begin_of_text().front());
    EXPECT_EQ(scored(*llama3, text), " b");
  }
}

TEST(Continuation, IsRefusedIfNothingIsScoredOrNothingPrecedesIt) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_THAT([&] { encode_continuation(*bytes, "", "a"); },
              ThrowsMessage<UsageError>(HasSubstr("the context is empty")));
  EXPECT_THAT([&] { encode_continuation(*bytes, "a", ""); },
              ThrowsMessage<UsageError>(HasSubstr("no token")));
}
