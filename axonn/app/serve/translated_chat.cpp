#include "axonn/app/serve/translated_chat.h"

#include <algorithm>
#include <utility>

#include "axonn/app/serve/request_body.h"
#include "axonn/app/serve/request_keys.h"

namespace axonn {

CompletionRequest parse_translated(const std::string& text, const ServedModel& model,
                                   const ChatTranslation& translation) {
  auto unknown = check_keys(RequestBody(text), translation.kind);
  const auto given = nlohmann::ordered_json::parse(text);
  nlohmann::ordered_json chat = translation.chat(given);
  for (const std::string& key : unknown) chat.erase(key);
  try {
    CompletionRequest request = parse_chat_completion(dumped(chat), model);
    request.kind = translation.kind;
    request.unknown_keys = std::move(unknown);
    request.repeated = translation.repeated(given);
    return request;
  } catch (const RequestError& error) {
    const std::string said = error.what();
    throw RequestError(translation.key_here(error.member), said.substr(error.member.size() + 2),
                       error.code);
  }
}

std::string text_member(const char* key, const char* part, const nlohmann::ordered_json& of,
                        const char* name) {
  const nlohmann::ordered_json value = member_of(of, name);
  if (!value.is_string()) reject_key(key, part, " lacks the text '", name, '\'');
  return value;
}

nlohmann::ordered_json text_parts(const char* key, const char* part,
                                  const nlohmann::ordered_json& content,
                                  std::initializer_list<const char*> types, const char* supported) {
  if (!content.is_array()) return content;
  auto parts = nlohmann::ordered_json::array();
  for (const auto& each : content) {
    const nlohmann::ordered_json type = member_of(each, "type");
    if (std::ranges::find(types, type) == types.end())
      reject_key(key, supported, ", got ", shown_value(type));
    parts.push_back({{"type", "text"}, {"text", text_member(key, part, each, "text")}});
  }
  return parts;
}

}  // namespace axonn
