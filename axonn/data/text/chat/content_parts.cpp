#include "axonn/data/text/chat/content_parts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

// Types of parts and the members that hold their texts.
using TextType = std::pair<std::string_view, const char*>;
constexpr std::array<TextType, 4> kTextTypes{
    {{"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}}};
// Types of what only other models read, in the APIs of today.
constexpr std::array<std::string_view, 11> kMedia{
    "image", "image_url", "input_image", "audio", "audio_url", "input_audio",
    "video", "video_url", "input_video", "file",  "input_file"};

/// A member of a part that is a text; null if it has none.
const Text* text_in(const Value& part, std::string_view member) {
  const Value* found = part.dict() ? part.dict()->find(member) : nullptr;
  return found ? found->text() : nullptr;
}

/// The text of a part of text; null for other values.
const Text* text_of_part(const Value& part) {
  const Text* type = text_in(part, "type");
  if (!type) return nullptr;
  const auto known = std::ranges::find(kTextTypes, type->bytes(), &TextType::first);
  return known == kTextTypes.end() ? nullptr : text_in(part, known->second);
}

Value as_part(const Text& text) {
  Dict part;
  part.set("type", Text("text", text.origin()));
  part.set("text", text);
  return part;
}

/// A conversation in which one message has this role, and the place of that message.
std::pair<Conversation, std::size_t> probe_of(std::string_view role, const std::string& content) {
  const Message probed{std::string(role), content}, asked{"user", "Hi"};
  if (role == "user") return {Conversation({probed}), 0};
  if (role == "system" || role == "developer") return {Conversation({probed, asked}), 0};
  if (role != "tool") return {Conversation({asked, probed}), 1};
  Conversation called({asked, {"assistant", ""}, probed});
  called.set_member(1, "tool_calls", *parse_chat_json(R"([{"id": "call00001", "type": "function",
                                          "function": {"name": "f", "arguments": {}}}])"));
  called.set_member(2, "tool_call_id", "call00001");
  return {std::move(called), 2};
}

}  // namespace

bool is_text_parts(const Value& content) {
  const List* parts = content.list();
  return parts && std::ranges::all_of(parts->items, text_of_part);
}

std::string fault_of_parts(const List& parts, bool of_tool) {
  for (const Value& part : parts.items) {
    if (text_of_part(part)) continue;
    const Text* type = text_in(part, "type");
    const std::string_view name = type ? std::string_view(type->bytes()) : "";
    if (of_tool && std::ranges::find(kMedia, name) == kMedia.end()) continue;
    if (!type)
      return "a part of the content is no object with a \"type\"; wanted {\"type\": \"text\", "
             "\"text\": \"...\"}";
    if (std::ranges::find(kTextTypes, name, &TextType::first) != kTextTypes.end())
      return concat("a part of type \"", name, "\" has no text");
    return concat("a part of the content has the type \"", printable(name.substr(0, 80)),
                  "\"; the model reads text alone, so all parts must be of type \"text\"");
  }
  return "";
}

Value content_in(ContentForm form, const Value& content, Origin origin) {
  if (content.text() && form == ContentForm::parts)
    return List{.items = {as_part(*content.text())}};
  if (!is_text_parts(content)) return content;
  const std::vector<Value>& parts = content.list()->items;
  if (form == ContentForm::parts || (form == ContentForm::either && !parts.empty())) {
    List same;
    for (const Value& part : parts)
      same.items.push_back(text_in(part, "type")->bytes() == "text" ? part
                                                                    : as_part(*text_of_part(part)));
    return same;
  }
  Text joined("", origin);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined.append("\n", origin);
    joined.append(*text_of_part(parts[i]));
  }
  return joined;
}

ContentForm find_content_form(
    std::string_view role,
    const std::function<std::optional<std::string>(const Conversation&)>& rendered) {
  const std::string word = "the words of the message";
  auto [probe, index] = probe_of(role, word);
  probe.now = parse_chat_date("2024-07-26", "");  // any day
  const auto has_word = [&](const std::optional<std::string>& text) {
    return text && text->find(word) != text->npos;
  };
  const std::optional<std::string> of_text = rendered(probe);
  probe.set_member(index, "content",
                   content_in(ContentForm::parts, *probe.messages[index].dict()->find("content"),
                              Origin{.source = static_cast<std::int32_t>(index)}));
  const std::optional<std::string> of_parts = rendered(probe);
  if (!has_word(of_text)) return has_word(of_parts) ? ContentForm::parts : ContentForm::text;
  return of_text == of_parts ? ContentForm::either : ContentForm::text;
}

}  // namespace axonn
