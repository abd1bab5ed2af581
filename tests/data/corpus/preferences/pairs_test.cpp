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
using testing::Pair;

namespace {

const AnswerData kPairs{.kind = AnswerData::Kind::pairs};

std::string refusal_of_pair(const std::string& line) {
  try {
    parse_pair(line, "FILE:7");
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TextPair text_pair(const std::string& line) {
  return std::get<TextPair>(parse_pair(line, "FILE:7").answers);
}

AnswerFormat bytes_and_chatml() {
  const auto bytes = make_tokenizer("bytes");
  return {bytes, ChatTemplate(bytes, find_chat_format("chatml", "bytes"))};
}

/// The text of a document of bytes, with | before what is learned.
std::string shown(const std::vector<std::int32_t>& coded) {
  std::string text;
  for (const std::int32_t token : coded) {
    if (token >= 0 && text.find('|') == text.npos) text += '|';
    text += static_cast<char>(token < 0 ? ~token : token);
    EXPECT_EQ(token >= 0, text.find('|') != text.npos) << "learned up to the end: " << text;
  }
  return text;
}

/// Both answers of a line of messages, in marks of one byte.
std::pair<std::string, std::string> shown_pair(const std::string& line) {
  const auto bytes = make_tokenizer("bytes");
  const ChatFormat format{{{"default", "own",
                            "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
                            "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}/{% endfor %}"
                            "{% if add_generation_prompt %}a:{% endif %}"}}};
  const AnswerFormat own{bytes, ChatTemplate(bytes, format)};
  const CodedPair coded = encode_pair(own, parse_pair(line, "FILE:7"), "FILE:7");
  return {shown(coded.chosen), shown(coded.rejected)};
}

/// Two documents of each pair: prompts of one token, answers of so many.
DocumentRange coded_pairs(const std::vector<std::pair<int, int>>& answers) {
  DocumentWriter writer("", "pairs");
  for (const auto& [chosen, rejected] : answers)
    for (const int count : {chosen, rejected}) {
      std::vector<std::int32_t> coded{~5};
      for (int i = 0; i < count; ++i) coded.push_back(10 + i);
      writer.append(coded);
    }
  auto documents = writer.finish();
  const std::int64_t count = documents->count();
  return {std::move(documents), 0, count};
}

}  // namespace

TEST(Pairs, HaveThePromptOfTheirLineOrWhatBothAnswersBeginWith) {
  const TextPair given = text_pair(R"({"prompt": "is", "chosen": " it", "rejected": " he"})");
  EXPECT_EQ(given.prompt, "is");
  EXPECT_EQ(given.chosen, " it");
  const TextPair implied =
      text_pair(R"({"chosen": "the sky is blue", "rejected": "the sky is green"})");
  EXPECT_EQ(implied.prompt, "the sky is");
  EXPECT_EQ(implied.chosen, " blue");
  EXPECT_EQ(implied.rejected, " green");
  EXPECT_EQ(shared_prompt("yes, it is", "yes, it is not"), 9) << "the shorter one has an answer";
  EXPECT_EQ(shared_prompt("a\xC3\xA4", "a\xC3\xB6"), 1) << "a character is not cut";
}

TEST(Pairs, AreRefusedWithTheirLineAndARemedy) {
  EXPECT_THAT(refusal_of_pair(R"({"prompt": "a", "chosen": "b"})"),
              HasSubstr("FILE:7: there is no \"rejected\""));
  EXPECT_THAT(refusal_of_pair(R"({"prompt": [], "chosen": "b", "rejected": "c"})"),
              HasSubstr("\"prompt\" is a list, and not all others are"));
  EXPECT_THAT(refusal_of_pair(R"({"prompt": "a", "completion": "b", "label": true})"),
              HasSubstr("set preference.loss = \"kto\""));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": "b", "rejected": "c", "images": ["a.png"]})"),
              HasSubstr("\"images\": the model reads text alone"));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": "b", "rejected": "c", "weight": 0.5})"),
              HasSubstr("\"weight\" is 0.5"));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": 1, "rejected": "c"})"), HasSubstr("is not a string"));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": "c", "rejected": "c"})"), HasSubstr("are the same"));
  EXPECT_THAT(refusal_of_pair("[1]"), HasSubstr("not a JSON object"));
}

TEST(Pairs, WithAnAnswerThatHasNoTokenAreRefused) {
  test::TemporaryPath folder;
  std::ofstream(folder / "a.jsonl") << R"({"prompt": "a", "chosen": "b", "rejected": ""})" << '\n';
  EXPECT_THAT([&] { encode_answers({folder / "a.jsonl"}, {make_tokenizer("bytes")}, kPairs); },
              testing::ThrowsMessage<UsageError>(HasSubstr("an answer has no token to learn")));
}

TEST(Pairs, NameTheKeysOfTheirLineThatNothingReads) {
  const AnswerPair pair =
      parse_pair(R"({"chosen": "b", "rejected": "c", "score_chosen": 7, "id": 1, "x": null})", "");
  EXPECT_THAT(pair.line_keys, ElementsAre("score_chosen"));
  test::TemporaryPath folder;
  std::ofstream(folder / "a.jsonl") << R"({"chosen": "b", "rejected": "c", "margin": 1})" << '\n';
  EXPECT_THAT(notes_of_answers({folder / "a.jsonl"}, kPairs, {}),
              ElementsAre(HasSubstr("nothing reads the key \"margin\"")));
}

TEST(Pairs, OfMessagesLearnAllThatFollowsThePromptInTheChatTemplate) {
  const std::string prompt = R"("prompt": [{"role": "user", "content": "sky?"}])";
  const std::string chosen = R"("chosen": [{"role": "assistant", "content": "blue"}])";
  const std::string rejected = R"("rejected": [{"role": "assistant", "content": "red"}])";
  EXPECT_THAT(shown_pair('{' + prompt + ", " + chosen + ", " + rejected + '}'),
              Pair("u:sky?/a:|blue/", "u:sky?/a:|red/"));
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "add"}}], )";
  EXPECT_THAT(shown_pair('{' + tools + prompt + ", " + chosen + ", " + rejected + '}'),
              Pair("add;u:sky?/a:|blue/", "add;u:sky?/a:|red/"));
  EXPECT_THAT(shown_pair('{' + prompt + R"(, "chosen": [{"role": "assistant", "content": "b"},
      {"role": "user", "content": "why?"}, {"role": "assistant", "content": "d"}], )" +
                         rejected + '}'),
              Pair("u:sky?/a:|b/u:why?/a:d/", "u:sky?/a:|red/"));
}

TEST(Pairs, OfMessagesHaveThePromptThatBothBeginWith) {
  const std::string line = R"("chosen": [{"role": "user", "content": "sky?"},
      {"role": "assistant", "content": "blue"}, {"role": "user", "content": "sea?"},
      {"role": "assistant", "content": "green"}],
    "rejected": [{"role": "user", "content": "sky?"}, {"role": "assistant", "content": "blue"},
      {"role": "user", "content": "sea?"}, {"role": "assistant", "content": "no"}]})";
  const auto wanted = Pair("u:sky?/a:blue/u:sea?/a:|green/", "u:sky?/a:blue/u:sea?/a:|no/");
  EXPECT_THAT(shown_pair('{' + line), wanted);
  EXPECT_THAT(shown_pair(R"({"prompt": "sea?", )" + line), wanted) << "the prompt's text once more";
  EXPECT_THAT(refusal_of_pair(R"({"prompt": "sky?", )" + line),
              HasSubstr("is a string, but not the content of the last message"));
  EXPECT_THAT(shown_pair(R"({"chosen": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "b"}]})"),
              Pair("u:q/a:|a/", "u:q/a:|a/u:r/a:b/"))
      << "the shorter one has an answer, too";
}

TEST(Pairs, OfMessagesAreRefusedWithTheirLineAndTheFault) {
  const std::string user = R"({"role": "user", "content": "q"})",
                    yes = R"({"role": "assistant", "content": "yes"})",
                    no = R"({"role": "assistant", "content": "no"})";
  const auto line_of = [](const std::string& chosen, const std::string& rejected) {
    return R"({"chosen": [)" + chosen + R"(], "rejected": [)" + rejected + "]}";
  };
  EXPECT_THAT(refusal_of_pair(line_of(yes, no)), HasSubstr("begin with no message that both have"));
  EXPECT_THAT(refusal_of_pair(line_of(user + ',' + yes, user + ',' + yes)),
              HasSubstr("are the same"));
  EXPECT_THAT(refusal_of_pair(line_of(user, "")), HasSubstr("an answer has no messages"));
  EXPECT_THAT(refusal_of_pair(line_of(user + ',' + yes, user + R"(,{"content": "no"})")),
              HasSubstr("FILE:7: prompt and \"rejected\": message 2"));
  const std::string unlearned = R"({"role": "assistant", "content": "no", "weight": 0})";
  EXPECT_THAT(refusal_of_pair(line_of(user + ',' + yes, user + ',' + unlearned)),
              HasSubstr("all that follows the prompt is"));
  const std::string other = R"({"role": "user", "content": "r"})";
  const AnswerPair of_user = parse_pair(line_of(user + ',' + other, user + ',' + yes), "FILE:7");
  EXPECT_THAT([&] { encode_pair(bytes_and_chatml(), of_user, "FILE:7"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("is not the assistant's")));
}

TEST(Pairs, BeginTheirAnswersWhereTheTokensOfThePromptEnd) {
  const CodedPair coded =
      encode_pair({make_tokenizer("bytes")}, {TextPair{"ab", "c", "de"}}, "FILE:7");
  EXPECT_THAT(coded.chosen, ElementsAre(~'a', ~'b', 'c'));
  EXPECT_THAT(coded.rejected, ElementsAre(~'a', ~'b', 'd', 'e'));
}

TEST(Pairs, AreSequencesOfTwoDocumentsThatDoNotSeeEachOther) {
  const PairSequences pairs(coded_pairs({{2, 1}}), 5, 0, ExcessLength::split);
  ASSERT_EQ(pairs.count(), 1);
  Sequence rows;
  pairs.read(0, rows);
  EXPECT_THAT(rows.ids, ElementsAre(5, 10, 5, 0, 0));
  EXPECT_THAT(rows.targets, ElementsAre(10, 11, 10, kPaddingTarget, kPaddingTarget));
  EXPECT_THAT(rows.positions, ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(rows.starts, ElementsAre(0, 0, 2, 3, 4));
  EXPECT_EQ(pairs.size(0).targets, 3);
  EXPECT_EQ(pairs.size(0).inputs, 3);
}

TEST(Pairs, MayLearnThePromptOfTheChosenAnswerAsWell) {
  DocumentWriter writer("", "pairs");
  for (const std::int32_t answer : {10, 11})
    writer.append(std::vector<std::int32_t>{~5, ~6, ~7, answer, 2});
  const PairSequences pairs({writer.finish(), 0, 2}, 9, 0, ExcessLength::split,
                            {.kind = AnswerData::Kind::pairs, .with_prompt = true});
  Sequence rows;
  pairs.read(0, rows);
  EXPECT_THAT(rows.targets, ElementsAre(6, 7, 10, 2, -1, -1, 11, 2, kPaddingTarget));
  EXPECT_EQ(pairs.size(0).targets, 6);
  EXPECT_EQ(pairs.prompt_rows(0), 2);
}

TEST(Pairs, MayHaveTheirPromptOnceBeforeTwoBranches) {
  DocumentWriter writer("", "pairs");
  writer.append(std::vector<std::int32_t>{~5, ~6, ~7, 10, 11});
  writer.append(std::vector<std::int32_t>{~5, ~6, ~7, 12, 13, 14});
  writer.append(std::vector<std::int32_t>{~5, ~8, 10});  // prompts of which one token is common
  writer.append(std::vector<std::int32_t>{~5, ~9, 11});
  writer.append(std::vector<std::int32_t>{~5, ~8, 10});
  writer.append(std::vector<std::int32_t>{~5, ~8, ~7, 10});  // a longer one
  const DocumentRange documents{writer.finish(), 0, 6};
  AnswerData data{.kind = AnswerData::Kind::pairs, .shared_prompt = true};
  const PairSequences pairs(documents, 8, 0, ExcessLength::split, data);
  Sequence rows;
  pairs.read(0, rows);
  // The last token of the prompt has a row in each branch, with the branch's target.
  EXPECT_THAT(rows.ids, ElementsAre(5, 6, 7, 10, 7, 12, 13, 0));
  EXPECT_THAT(rows.targets, ElementsAre(-1, -1, 10, 11, 12, 13, 14, kPaddingTarget));
  EXPECT_THAT(rows.positions, ElementsAre(0, 1, 2, 3, 2, 3, 4, 0));
  EXPECT_THAT(rows.starts, ElementsAre(0, 0, 0, 0, 0, 0, 0, 7));
  EXPECT_THAT(rows.branches, ElementsAre(2, 4, 7));
  EXPECT_EQ(pairs.size(0).targets, 5);
  EXPECT_EQ(pairs.size(0).inputs, 7);
  pairs.read(1, rows);
  EXPECT_THAT(rows.ids, ElementsAre(5, 8, 5, 9, 0, 0, 0, 0));
  EXPECT_THAT(rows.branches, ElementsAre(0, 2, 4));
  pairs.read(2, rows);
  EXPECT_THAT(rows.ids, ElementsAre(5, 8, 8, 7, 0, 0, 0, 0));
  EXPECT_THAT(rows.positions, ElementsAre(0, 1, 1, 2, 0, 0, 0, 0));
  EXPECT_THAT(rows.branches, ElementsAre(1, 2, 4));
  data.shared_prompt = false;
  EXPECT_THAT([&] { PairSequences(documents, 8, 0, ExcessLength::split, data); },
              testing::ThrowsMessage<UsageError>(HasSubstr("pair 1 of pairs has 9 tokens")));
}

TEST(Pairs, ThatAreLongerThanASequenceAreRefusedOrLeftOut) {
  const auto make = [](ExcessLength excess) {
    return PairSequences(coded_pairs({{2, 1}, {4, 4}}), 5, 0, excess);
  };
  EXPECT_THAT([&] { make(ExcessLength::split); },
              testing::ThrowsMessage<UsageError>(HasSubstr("pair 2 of pairs has 8 tokens")));
  EXPECT_EQ(make(ExcessLength::drop).count(), 1);
  EXPECT_THAT(make(ExcessLength::drop).notes(),
              ElementsAre(HasSubstr("1 of 2 pairs are longer than 5 tokens")));
}

TEST(Pairs, AreReadFromTheLinesOfFiles) {
  test::TemporaryPath folder;
  std::ofstream(folder / "a.jsonl") << R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                                    << "\n\n"
                                    << R"({"chosen": "x1", "rejected": "x2"})" << '\n';
  const auto documents =
      encode_answers({folder / "a.jsonl"}, {make_tokenizer("bytes")}, kPairs).documents;
  ASSERT_EQ(documents->count(), 4);
  EXPECT_THAT(documents->coded(1), ElementsAre(~'a', 'c'));
  EXPECT_THAT(documents->coded(2), ElementsAre(~'x', '1'));
  EXPECT_FALSE(holds_message_answers(folder / "a.jsonl", kPairs));
  EXPECT_THAT([&] { encode_answers({folder / "a.jsonl"}, bytes_and_chatml(), kPairs); },
              testing::ThrowsMessage<UsageError>(HasSubstr("put each kind into separate files")));
}
