#include "axonn/data/text/chat/conversation.h"

#include <gmock/gmock.h>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

Conversation conversation_of(const std::string& json) {
  return Conversation::parse(*parse_chat_json(json)->dict(), "talk");
}

/// The text that a template makes of a conversation, of which training and serving see the
/// normalized form.
std::string text_of(const std::string& source, const std::string& json) {
  const ChatTemplate chat(make_tokenizer("bytes"), {{{"default", "own", source}}});
  Conversation talk = conversation_of(json);
  talk.normalize();
  return chat.text(chat.fit_to_template(talk), false).bytes();
}

std::string text_of_call(const std::string& arguments) {
  return text_of(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}"
      "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
          "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" +
          arguments + "}}]}]}");
}

}  // namespace

TEST(Conversation, ArgumentsOfCallsAsTheTextOfJsonAreWrittenAsObjects) {
  const std::string object = R"({"port": "Zürich", "n": [1, 2.5, null, true]})";
  EXPECT_EQ(text_of_call(object), object) << "what transformers 5.23 writes";
  EXPECT_EQ(text_of_call(R"("{\"port\": \"Zürich\", \"n\": [1, 2.5, null, true]}")"), object);
  for (const char* none : {"null", R"("")", R"(" ")", R"("null")", "{}", R"("{}")"})
    EXPECT_EQ(text_of_call(none), "{}") << none;
  EXPECT_EQ(text_of_call(R"("port=1")"), R"("port=1")") << "no object: as it is";
}

TEST(Conversation, ArgumentsOfCallsAreATextForATemplateThatAppendsThemToTexts) {
  const auto text_of_call_by = [](const std::string& print, const std::string& arguments) {
    return text_of("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + " + print +
                       " + '>' }}{% endfor %}{% endfor %}",
                   R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
                       "content": null, "tool_calls": [{"type": "function", "function":
                       {"name": "f", "arguments": )" +
                       arguments + "}}]}]}");
  };
  const std::string appended = "c.function.arguments", printed = appended + " | string",
                    either =
                        "(c.function.arguments if c.function.arguments is string else "
                        "c.function.arguments | tojson)";
  const std::string object = R"({"n": [1, 12345678901234567890123, 0.1], "s": "é"})";
  for (const std::string& print : {appended, either})
    EXPECT_EQ(text_of_call_by(print, object), '<' + object + '>') << print;
  EXPECT_EQ(text_of_call_by(printed, object),
            "<{'n': [1, 12345678901234567890123, 0.1], 's': 'é'}>")
      << "what transformers 5.23 writes";
  const std::string text = R"("{\"n\":1.50,  \"m\":12345678901234567890123}")",
                    same = R"(<{"n":1.50,  "m":12345678901234567890123}>)";
  for (const std::string& print : {appended, printed})
    EXPECT_EQ(text_of_call_by(print, text), same) << print << ": what transformers 5.23 writes";
  for (const char* none : {"null", R"("")", "{}"})
    EXPECT_EQ(text_of_call_by(appended, none), "<{}>") << none;
}

TEST(Conversation, AnEmptyListOfToolsOrDocumentsIsNone) {
  const std::string source =
      "{% if tools is not none %}tools{% endif %}{% if documents is not none %}documents{% endif %}"
      "{{ messages[0].content }}";
  const auto with = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "a"}])" + more + "}";
  };
  EXPECT_EQ(text_of(source, with(R"(, "tools": [], "documents": [])")), "a");
  EXPECT_EQ(text_of(source, with(R"(, "tools": "[]", "documents": null)")), "a");
  EXPECT_EQ(text_of(source, with(R"(, "tools": [{}])")), "toolsa");
}

TEST(Conversation, MembersThatAreNullAndEmptyListsOfCallsAreAbsent) {
  const std::string source =
      "{% for m in messages %}{{ m.content }}{% if 'tool_calls' in m %}calls{% endif %}"
      "{% if m.name is defined %}{{ m.name }}{% endif %}{% endfor %}";
  for (const char* more : {R"(, "tool_calls": [], "name": null)", R"(, "tool_calls": null)"})
    EXPECT_EQ(text_of(source, std::string(R"({"messages": [{"role": "assistant", "content": "a")") +
                                  more + "}]}"),
              "a");
  EXPECT_EQ(text_of("{{ messages[0].content is none }}",
                    R"({"messages": [{"role": "assistant", "content": null,
                        "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]})"),
            "True")
      << "by which templates know a turn that only calls";
  for (const char* empty : {R"("tool_calls": [])", R"("tool_calls": null)", R"("name": null)"})
    EXPECT_THAT(
        [&] {
          conversation_of(
              concat(R"({"messages": [{"role": "assistant", "content": null, )", empty, "}]}"));
        },
        testing::ThrowsMessage<UsageError>(HasSubstr("talk: message 1: wanted")))
        << empty;
}

TEST(Conversation, ThoughtsHaveAllThreeNames) {
  for (const char* given : {"reasoning_content", "reasoning", "thinking"})
    for (const char* read : {"reasoning_content", "reasoning", "thinking"})
      EXPECT_EQ(text_of(concat("({{ messages[0].", read, " }}){{ messages[0].content }}"),
                        concat(R"({"messages": [{"role": "assistant", "content": "a", ")", given,
                               R"(": "hm"}]})")),
                "(hm)a")
          << given << ", " << read;
  EXPECT_EQ(text_of("{{ messages[0].reasoning }}{{ messages[0].thinking }}",
                    R"({"messages": [{"role": "assistant", "content": "a", "thinking": "own",
                        "reasoning_content": "hm", "reasoning": null}]})"),
            "hmown")
      << "what is there remains";
}

TEST(Conversation, TheDeveloperIsTheSystemWhereTheTemplateDoesNotKnowIt) {
  const std::string json = R"({"messages": [{"role": "developer", "content": "a"}]})";
  EXPECT_EQ(text_of("{{ messages[0].role }}:{{ messages[0].content }}", json), "system:a");
  EXPECT_EQ(text_of("{# developer #}{{ messages[0].role }}:{{ messages[0].content }}", json),
            "developer:a");
}
