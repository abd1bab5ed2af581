// How the parts of a message's content reach templates of both kinds.
#include <gmock/gmock.h>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// "Hi" of the user, and a message of this role with this content.
Conversation talk_with(const std::string& role, const std::string& content) {
  const std::string json = concat(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": ")",
                                  role, R"(", "content": )", content, "}]}");
  return Conversation::parse(*parse_chat_json(json)->dict(), "talk");
}

ChatTemplate chat_by(const std::string& text) {
  return {make_tokenizer("bytes"),
          {.forms = {{"default", "t", text}}, .tokens = {{"bos_token", ""}}}};
}

/// The template's text of the last message, which it begins with "[".
std::string shown_content(const ChatTemplate& chat, const std::string& content,
                          const std::string& role = "user") {
  const std::string all = make_tokenizer("bytes")->decode(chat.prompt(talk_with(role, content)));
  return all.substr(all.rfind('['));
}

const std::string kTwoParts =
    R"([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])";

}  // namespace

TEST(ContentParts, AreGivenAsTheTemplateReadsThem) {
  const ChatTemplate texts =
      chat_by("{% for m in messages %}[{{ m.role }}: {{ m.content }}{% endfor %}");
  EXPECT_EQ(shown_content(texts, kTwoParts), "[user: one\ntwo");
  EXPECT_EQ(shown_content(texts, "[]"), "[user: ");
  EXPECT_EQ(shown_content(texts, R"([{"type": "refusal", "refusal": "no"}])"), "[user: no");
  const ChatTemplate either = chat_by(
      "{% for m in messages %}[{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}");
  EXPECT_EQ(shown_content(either, kTwoParts), "[onetwo");
  EXPECT_EQ(shown_content(either, R"([{"type": "input_text", "text": "one"}])"), "[one");
  const ChatTemplate only_parts = chat_by(
      "{% for m in messages %}[{% for p in m.content if p.type == 'text' %}"
      "{{ p.text }}{% endfor %}{% endfor %}");
  EXPECT_EQ(shown_content(only_parts, kTwoParts), "[onetwo");
  EXPECT_EQ(shown_content(only_parts, "\"one\""), "[one") << "a text is one part";
}

// A template may read the parts of users alone.
TEST(ContentParts, AreGivenByRole) {
  const ChatTemplate chat = chat_by(
      "{% for m in messages %}[{% if m.role == 'user' and m.content is not string %}"
      "{% for p in m.content %}{{ p.text }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}");
  EXPECT_EQ(shown_content(chat, kTwoParts), "[onetwo");
  EXPECT_EQ(shown_content(chat, kTwoParts, "tool"), "[one\ntwo");
  EXPECT_EQ(shown_content(chat, kTwoParts, "system"), "[one\ntwo");
}

TEST(ContentParts, ReachTemplatesInTheMannerOfPublishedOnes) {
  const std::string json = R"({"messages": [{"role": "user", "content": )" + kTwoParts + "}]}";
  const Conversation talk = Conversation::parse(*parse_chat_json(json)->dict(), "talk");
  for (const auto& [name, want] : {std::pair{"chatml_default_system", "user\none\ntwo<"},
                                   {"model_turns_parts", "onetwo<"},
                                   {"attributes", "onetwo"},
                                   {"inst", "[INST] one\ntwo [/INST]"}}) {
    const ChatTemplate chat = chat_by(read_text(concat(AXONN_CHAT_TEMPLATES, '/', name, ".jinja")));
    EXPECT_THAT(make_tokenizer("bytes")->decode(chat.prompt(talk)), HasSubstr(want)) << name;
  }
}

TEST(ContentParts, OfTheAssistantAreLearnedAsItsText) {
  const ChatTemplate chat(make_tokenizer("bytes"), find_chat_format("chatml", "bytes"));
  const auto learned = [&](const std::string& content) {
    const ChatTemplate::Rendered all = chat.render(talk_with("assistant", content));
    return std::pair(all.tokens, all.learned);
  };
  EXPECT_EQ(learned(kTwoParts), learned("\"onetwo\"")) << "chatml reads parts itself";
  EXPECT_EQ(learned("[]"), learned("\"\""));
}

TEST(ContentParts, OtherThanTextAreRefused) {
  const auto refusal = [](const std::string& role, const std::string& part) {
    return [=] { talk_with(role, R"([{"type": "text", "text": "What is it?"}, )" + part + "]"); };
  };
  EXPECT_THAT(refusal("user", R"({"type": "image_url", "image_url": {"url": "data:"}})"),
              ThrowsMessage<UsageError>(HasSubstr(
                  "talk: message 2: a part of the content has the type \"image_url\"; the model "
                  "reads text alone")));
  EXPECT_THAT(refusal("user", R"({"type": "input_audio", "input_audio": {}})"),
              ThrowsMessage<UsageError>(HasSubstr("\"input_audio\"")));
  EXPECT_THAT(refusal("assistant", R"({"type": "text"})"),
              ThrowsMessage<UsageError>(HasSubstr("has no text")));
  EXPECT_THAT(refusal("user", "\"x\""), ThrowsMessage<UsageError>(HasSubstr("is no object")));
  EXPECT_THAT(refusal("tool", R"({"type": "image_url"})"),
              ThrowsMessage<UsageError>(HasSubstr("\"image_url\"")));
  EXPECT_NO_THROW(refusal("tool", R"({"type": "sensor", "value": 1})")());
}
