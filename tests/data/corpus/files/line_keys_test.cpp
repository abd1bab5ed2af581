#include "axonn/data/corpus/files/line_keys.h"

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

std::string key_fault_of(std::string_view line) {
  try {
    parse_example(line, "f.jsonl:7");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// The learned text of a line's messages in the format chatml, or in one of a template's text.
std::string learned_text(const std::string& line, const std::string& own = "",
                         bool last_turn_only = false) {
  const auto bytes = make_tokenizer("bytes");
  const ChatFormat format =
      own.empty() ? find_chat_format("chatml", "bytes") : ChatFormat{{{"default", "own", own}}};
  const ChatTemplate chat(bytes, format, {.last_turn_only = last_turn_only});
  const Example example = parse_example(line, "f.jsonl:7");
  EXPECT_FALSE(example.lacks_answer());
  const auto [tokens, learned] = chat.render(example.conversation);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (learned[i]) text += static_cast<char>(tokens[i]);
  return text;
}

/// A line of two questions and answers, with further members of the answers.
std::string talk(const std::string& first, const std::string& second = "") {
  return concat(R"({"messages": [{"role": "user", "content": "a"}, )",
                R"({"role": "assistant", "content": "first")", first,
                R"(}, {"role": "user", "content": "b"}, )",
                R"({"role": "assistant", "content": "second")", second, "}]}");
}

}  // namespace

TEST(LineKeys, PreferenceDataAreRefusedByTheNameOfTheirKey) {
  for (const auto& [line, key] : std::vector<std::pair<const char*, const char*>>{
           {R"({"prompt": "a", "completion": "b", "label": false})", "label"},
           {R"({"prompt": "a", "completion": "b", "label": true})", "label"},
           {R"({"prompt": "a", "completion": "b", "label": 0})", "label"},
           {R"({"messages": [{"role": "assistant", "content": "b"}], "label": false})", "label"},
           {R"({"messages": [{"role": "assistant", "content": "b"}], "rejected": "c"})",
            "rejected"},
           {R"({"text": "a", "chosen": "b", "rejected": "c"})", "chosen"},
           {R"({"text": "a", "label": false})", "label"},
           {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", "chosen"},
           {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
                "rejected": {"from": "gpt", "value": "c"}})",
            "rejected"},
           {R"({"instruction": "a", "output": "b", "rejected_response": "c"})",
            "rejected_response"},
           {R"({"messages": [{"role": "assistant", "content": "b", "rejected": "c"}]})",
            "rejected"}})
    EXPECT_THAT(key_fault_of(line),
                AllOf(StartsWith("f.jsonl:7"), HasSubstr(concat('"', key, "\" belongs to pref"))))
        << line;
  for (const char* line : {R"({"text": "a film", "label": 1})", R"({"text": "a", "label": "sad"})",
                           R"({"prompt": "a", "completion": "b", "label": null})",
                           R"({"prompt": "a", "completion": "b", "rejected": null})"})
    EXPECT_EQ(key_fault_of(line), "") << line;
}

TEST(LineKeys, KeysThatWouldChangeWhatIsLearnedAreRefused) {
  EXPECT_THAT(key_fault_of(R"({"text": "a", "weight": 0.5})"), HasSubstr("\"weight\" is 0.5"));
  EXPECT_THAT(key_fault_of(R"({"prompt": "a", "completion": "b", "weight": 0})"),
              HasSubstr("\"weight\" is 0"));
  EXPECT_THAT(key_fault_of(R"({"text": "a", "loss_mask": [1]})"), HasSubstr("\"loss_mask\""));
  EXPECT_THAT(key_fault_of(R"({"messages": [], "functions": [{"name": "f"}]})"),
              HasSubstr("\"functions\" is not supported; give them as \"tools\""));
  EXPECT_THAT(key_fault_of(R"({"conversations": [], "image": "a.png"})"),
              HasSubstr("\"image\": the model reads text alone"));
  EXPECT_THAT(key_fault_of(talk(R"(, "train_detail": [])")), HasSubstr("\"train_detail\" would"));
  EXPECT_EQ(key_fault_of(R"({"text": "a", "weight": 1, "images": [], "functions": []})"), "");
}

TEST(LineKeys, MessagesOfWeightZeroOrTrainFalseAreNotLearned) {
  EXPECT_EQ(learned_text(talk("")), "first<|im_end|>second<|im_end|>");
  for (const char* none : {R"(, "weight": 0)", R"(, "weight": 0.0)", R"(, "train": false)",
                           R"(, "training": false)", R"(, "loss": false)"}) {
    EXPECT_EQ(learned_text(talk(none)), "second<|im_end|>") << none;
    EXPECT_EQ(learned_text(talk("", none)), "first<|im_end|>") << none;
    EXPECT_EQ(learned_text(talk("", none), "", true), "") << "the last turn is not learned";
  }
  for (const char* all : {R"(, "weight": 1)", R"(, "train": true)", R"(, "weight": null)"})
    EXPECT_EQ(learned_text(talk(all)), "first<|im_end|>second<|im_end|>") << all;
  EXPECT_EQ(learned_text(R"({"conversations": [{"from": "human", "value": "a"},
                {"from": "gpt", "value": "first", "weight": 0}, {"from": "human", "value": "b"},
                {"from": "gpt", "value": "second"}]})"),
            "second<|im_end|>");
}

TEST(LineKeys, MessagesOfWeightZeroAreNotLearnedWhereTheTemplateMarksAnswers) {
  const std::string marked =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}</>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(learned_text(talk(""), marked), "first</>second</>");
  EXPECT_EQ(learned_text(talk(R"(, "weight": 0)"), marked), "second</>");
  EXPECT_EQ(learned_text(talk("", R"(, "weight": 0)"), marked), "first</>");
  EXPECT_EQ(learned_text(R"({"messages": [{"role": "user", "content": "a"},
                {"role": "assistant", "content": "", "weight": 0}, {"role": "user", "content": "b"},
                {"role": "assistant", "content": "c"}]})",
                         marked),
            "c</>")
      << "the end of an empty turn belongs to it";
}

TEST(LineKeys, OtherWeightsAndContradictionsAreRefusedByName) {
  for (const char* weight : {"0.5", "2", "-1", "\"0\"", "[]"})
    EXPECT_THAT(key_fault_of(talk(concat(R"(, "weight": )", weight))),
                HasSubstr("f.jsonl:7: message 2: \"weight\" is "))
        << weight;
  EXPECT_THAT(key_fault_of(talk(R"(, "train": "no")")), HasSubstr("must be true or false"));
  EXPECT_THAT(key_fault_of(talk(R"(, "train": false, "weight": 1)")),
              HasSubstr("\"weight\" and \"train\" contradict each other"));
  EXPECT_THAT(key_fault_of(R"({"messages": [{"role": "user", "content": "a", "train": true}]})"),
              HasSubstr("message 1 is to be learned, but it is not the assistant's"));
}

TEST(LineKeys, TheTemplateDoesNotSeeTheWeightsOfMessages) {
  const Example example = parse_example(talk(R"(, "weight": 1, "train": true)"), "");
  EXPECT_EQ(example.conversation.messages[1].dict()->size(), 2U);
  const Example empty = parse_example(
      R"({"messages": [{"role": "assistant", "content": "", "weight": 1, "id": "x"}]})", "");
  EXPECT_TRUE(empty.lacks_answer()) << "neither a weight nor a number is an answer";
}

TEST(LineKeys, UnknownKeysOfALineAndOfMessagesAreNotedOnceForAFile) {
  const TempFolder folder;
  const auto warnings = [&](const std::string& lines) {
    return open_corpus({.jsonl = {folder.file("a.jsonl", lines)}}, {}).warnings;
  };
  EXPECT_THAT(warnings(R"({"text": "a", "mood": "glad", "id": 1, "source": "s", "note": null}
{"text": "b", "mood": "sad", "metadata": {}, "label": 3, "prompt_id": 4}
)"),
              ElementsAre(AllOf(HasSubstr("a.jsonl: nothing reads the keys \"mood\", \"label\";"),
                                HasSubstr("ignores them"))));
  EXPECT_THAT(warnings(talk(R"(, "mood": "glad", "name": "x")")
                           .replace(1, 0, R"("topic": "t", "prompt": "a", )")
                           .append("\n")),
              ElementsAre(HasSubstr("\"topic\", \"prompt\", \"mood\" of messages;")));
}

TEST(LineKeys, UnknownKeysOfLinesOfTextAreNotedAndFilesWithTheSameShareANote) {
  const TempFolder folder;
  std::vector<std::string> files;
  for (const char* name : {"a.jsonl", "b.jsonl", "c.jsonl"})
    files.push_back(folder.file(name, "{\"body\": \"a\", \"url\": \"u\", \"title\": \"t\"}\n"));
  EXPECT_THAT(open_corpus({.text = files, .text_field = "body"}, {}).warnings,
              ElementsAre(HasSubstr("a.jsonl and 2 more: nothing reads the key \"title\"")));
}

TEST(LineKeys, LinesOfTextWithPreferencesAreRefusedUnlessOneOfThemIsTheText) {
  const TempFolder folder;
  const std::string file =
      folder.file("a.jsonl", R"({"text": "a", "chosen": "b", "rejected": "c"})");
  EXPECT_THAT([&] { open_corpus({.text = {file}}, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("a.jsonl:1: \"chosen\" belongs to")));
  EXPECT_EQ(open_corpus({.text = {file}, .text_field = "chosen"}, {}).train[0].size(), 1);
}

TEST(LineKeys, AKeyThatTheTemplateReadsIsKnown) {
  const auto bytes = make_tokenizer("bytes");
  const auto unread = [&](const std::string& text) {
    const ExampleEncoder encoder(bytes, ChatTemplate(bytes, {{{"default", "own", text}}}));
    return encoder.unread_keys(parse_example(talk(R"(, "mood": "glad")"), ""));
  };
  EXPECT_THAT(unread("{% for m in messages %}{{ m.content }}{{ m.mood }}{% endfor %}"), IsEmpty());
  EXPECT_THAT(unread("{% for m in messages %}{{ m.content }}{% endfor %}"),
              ElementsAre("\"mood\" of messages"));
}

TEST(LineKeys, AMemberThatIsNullCountsAsAbsent) {
  EXPECT_EQ(parse_example(R"({"text": "abc", "messages": null})", "").text, "abc");
  const Example completion =
      parse_example(R"({"prompt": "a", "completion": "b", "text": null, "instruction": null})", "");
  EXPECT_EQ(completion.kind, Example::Kind::completion);
  EXPECT_EQ(parse_example(R"({"conversations": null, "messages":
                [{"role": "user", "content": "x"}], "tools": null})",
                          "")
                .conversation.messages.size(),
            1U);
  EXPECT_THAT(key_fault_of(R"({"prompt": "a", "completion": null})"),
              HasSubstr("\"completion\" is missing"));
}
