#include <fstream>

#include <gmock/gmock.h>

#include "axonn/data/corpus/files/file_notes.h"
#include "axonn/data/corpus/preferences/answer_files.h"
#include "axonn/data/corpus/preferences/labelled_lines.h"
#include "axonn/data/corpus/preferences/pair_lines.h"
#include "axonn/data/corpus/preferences/pair_sequences.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string refusal_of_labelled(const std::string& line) {
  try {
    parse_labelled(line, "FILE:7");
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

/// The documents of lines of one-byte tokens, with | before the answer, and "+" or "-" for the
/// label before each that has one.
std::vector<std::string> shown_examples(const std::vector<std::string>& lines, std::int64_t block,
                                        std::int64_t max_length = 0) {
  test::TemporaryPath folder;
  std::ofstream file(folder / "a.jsonl");
  for (const std::string& line : lines) file << line << '\n';
  file.close();
  const AnswerData data{.kind = AnswerData::Kind::labels, .block = block, .max_length = max_length};
  const AnswerDocuments got = encode_answers({folder / "a.jsonl"}, {make_tokenizer("bytes")}, data);
  std::vector<std::string> shown;
  for (std::int64_t d = 0; d < got.documents->count(); ++d) {
    std::string text = d % 2 == 1 ? "" : got.good[d / 2] ? "+" : "-";
    const std::vector<std::int32_t> coded = got.documents->coded(d);
    const std::size_t prompt = prompt_size(coded);
    for (std::size_t i = 0; i < coded.size(); ++i) {
      if (i == prompt) text += '|';
      text += static_cast<char>(token_of(coded[i]));
    }
    shown.push_back(text);
  }
  return shown;
}

std::string example(const std::string& prompt, const std::string& answer, const char* label) {
  return R"({"prompt": ")" + prompt + R"(", "completion": ")" + answer + R"(", "label": )" + label +
         '}';
}

}  // namespace

TEST(LabelledAnswers, HaveTheAnswerOfThePreviousExampleOfTheirBlockAsTheOther) {
  const std::vector<std::string> lines{example("p", "a", "true"), example("q", "b", "false"),
                                       example("r", "c", "1"), example("s", "d", "0"),
                                       example("t", "e", "true")};
  EXPECT_THAT(shown_examples({lines.begin(), lines.begin() + 3}, 3),
              ElementsAre("+p|a", "p|c", "-q|b", "q|a", "+r|c", "r|b"));
  EXPECT_THAT(shown_examples(lines, 3), ElementsAre("+p|a", "p|c", "-q|b", "q|a", "+r|c", "r|b",
                                                    "-s|d", "s|e", "+t|e", "t|d"));
  EXPECT_THAT(shown_examples(lines, 2), ElementsAre("+p|a", "p|b", "-q|b", "q|a", "+r|c", "r|e",
                                                    "-s|d", "s|c", "+t|e", "t|d"))
      << "the last one has no block of its own";
}

TEST(LabelledAnswers, OfPairsAreAThousandGoodOnesAndThenTheBadOnes) {
  const std::string one = R"({"prompt": "p", "chosen": "a", "rejected": "b"})",
                    two = R"({"prompt": "q", "chosen": "c", "rejected": "d"})";
  EXPECT_THAT(shown_examples({one, two}, 4),
              ElementsAre("+p|a", "p|d", "+q|c", "q|a", "-p|b", "p|c", "-q|d", "q|b"));
  const auto shown = shown_examples(std::vector<std::string>(1001, one), 4);
  ASSERT_EQ(shown.size(), 2 * 2002);
  EXPECT_EQ(shown[2 * 999], "+p|a");
  EXPECT_EQ(shown[2 * 1000], "-p|b");
  EXPECT_EQ(shown[2 * 2000], "+p|a");
}

TEST(LabelledAnswers, OfPairsAreHeldOutLineByLine) {
  test::TemporaryPath folder;
  std::ofstream file(folder / "a.jsonl");
  for (const char answer : {'a', 'b', 'c', 'd'})
    file << R"({"prompt": "p", "chosen": ")" << answer << R"(1", "rejected": ")" << answer
         << "2\"}\n";
  file.close();
  const AnswerDocuments got = encode_answers({folder / "a.jsonl"}, {make_tokenizer("bytes")},
                                             {.kind = AnswerData::Kind::labels, .block = 8}, 0.5);
  ASSERT_EQ(got.documents->count(), 16);
  EXPECT_EQ(got.trained, 8);
  EXPECT_THAT(got.good, ElementsAre(true, true, false, false, true, true, false, false));
  EXPECT_THAT(got.documents->coded(8), ElementsAre(~'p', 'c', '1'));
  EXPECT_THAT(got.documents->coded(9), ElementsAre(~'p', 'd', '2')) << "of the held-out ones";
}

TEST(LabelledAnswers, AreCutToTheLengthThatIsKept) {
  EXPECT_THAT(
      shown_examples(
          {example("pq", "abc", "1"), example("r", "xyz", "0"), example("1234", "x", "1")}, 2, 4),
      ElementsAre("+pq|ab", "pq|xy", "-r|xyz", "r|abc"))
      << "the third one's prompt leaves no token of its answer";
}

TEST(LabelledAnswers, OfMessagesLearnWhatFollowsThePrompt) {
  const auto bytes = make_tokenizer("bytes");
  const ChatFormat format{{{"default", "own",
                            "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}/{% endfor %}"
                            "{% if add_generation_prompt %}a:{% endif %}"}}};
  const LabelledLine line = parse_labelled(
      R"({"prompt": [{"role": "user", "content": "q"}],
          "completion": [{"role": "assistant", "content": "yes"}], "label": false})",
      "FILE:7");
  ASSERT_EQ(line.answers.size(), 1);
  EXPECT_FALSE(line.answers[0].good);
  const auto coded =
      encode_answer({bytes, ChatTemplate(bytes, format)}, line.answers[0].answer, "");
  std::string text;
  for (const std::int32_t token : coded) text += static_cast<char>(token_of(token));
  EXPECT_EQ(text, "u:q/a:yes/");
  EXPECT_EQ(prompt_size(coded), 6);
}

TEST(LabelledAnswers, AreRefusedWithTheirLineAndARemedy) {
  EXPECT_THAT(refusal_of_labelled(R"({"prompt": "a", "completion": "b"})"),
              HasSubstr("FILE:7: there is no \"label\"; a line for the loss kto"));
  EXPECT_THAT(refusal_of_labelled(R"({"completion": "b", "label": true})"),
              HasSubstr("there is no \"prompt\""));
  EXPECT_THAT(refusal_of_labelled(R"({"text": "b"})"), HasSubstr("there is no \"completion\""));
  EXPECT_THAT(refusal_of_labelled(example("a", "b", "0.5")), HasSubstr("neither true nor false"));
  EXPECT_THAT(refusal_of_labelled(R"({"prompt": "a", "chosen": "b", "rejected": "c", "label": 1})"),
              HasSubstr("\"label\" stands beside a pair"));
  EXPECT_THAT(refusal_of_labelled(R"({"prompt": "a", "chosen": "b"})"),
              HasSubstr("there is no \"rejected\""));
  EXPECT_THAT(refusal_of_labelled(R"({"prompt": [], "completion": "b", "label": true})"),
              HasSubstr("\"prompt\" is a list"));
  EXPECT_THAT(refusal_of_labelled(R"({"prompt": [], "completion": [], "label": true})"),
              HasSubstr("has no messages"));
  EXPECT_THAT(
      refusal_of_labelled(R"({"prompt": "a", "completion": "b", "label": true, "kto_tag": false})"),
      HasSubstr("\"kto_tag\" belongs to preference data of another form"));
  EXPECT_THAT(
      refusal_of_labelled(R"({"prompt": "a", "completion": "b", "label": true, "weight": 0.5})"),
      HasSubstr("\"weight\" is 0.5"));
  EXPECT_THAT([] { shown_examples({example("", "ab", "true")}, 2); },
              testing::ThrowsMessage<UsageError>(HasSubstr("\"prompt\" has no token")));
  EXPECT_THAT([] { shown_examples({example("a", "b", "true")}, 2); },
              testing::ThrowsMessage<UsageError>(HasSubstr("give at least 2")));
}

TEST(LabelledAnswers, NameTheKeysOfTheirLineThatNothingReads) {
  EXPECT_THAT(
      parse_labelled(
          R"({"prompt": "a", "completion": "b", "label": true, "score": 7, "id": 1, "x": null})",
          "")
          .line_keys,
      ElementsAre("score"));
}
