#include "axonn/data/jsonl.h"

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

using nlohmann::json;

constexpr const char* kKinds =
    "a line must have \"text\", or \"prompt\" and \"completion\", or \"messages\"";

std::string text_at(const json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(place, ": \"", key, "\" is missing; ", kKinds);
  if (!found->is_string()) refuse(place, ": \"", key, "\" is not a string");
  return found->get<std::string>();
}

std::vector<Message> messages_at(const json& object, const std::string& place) {
  const json& list = object["messages"];
  if (!list.is_array()) refuse(place, ": \"messages\" is not a list");
  std::vector<Message> messages;
  for (const json& each : list) {
    const std::string where = concat(place, ": message ", messages.size() + 1);
    const auto text = [&](const char* key) {
      if (!each.is_object() || !each.contains(key) || !each[key].is_string())
        refuse(where, ": wanted {\"role\": \"...\", \"content\": \"...\"}, both strings");
      return each[key].get<std::string>();
    };
    messages.push_back({text("role"), text("content")});
  }
  return messages;
}

}  // namespace

std::string_view name_of(Example::Kind kind) {
  if (kind == Example::Kind::text) return "text";
  return kind == Example::Kind::completion ? "prompt and completion" : "messages";
}

Example parse_example(std::string_view line, const std::string& place) {
  if (const std::size_t valid = valid_utf8_prefix(line); valid < line.size())
    refuse(place, ": byte ", valid + 1, " of the line is not UTF-8");
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    refuse(place, ": this is not a JSON object: ", printable(line.substr(0, 60)));
  const bool text = object.contains("text"), messages = object.contains("messages"),
             completion = object.contains("prompt") || object.contains("completion");
  if (text + messages + completion != 1)
    refuse(place, ": ", kKinds,
           text + messages + completion == 0 ? "; this one has none of them"
                                             : "; this one has more than one of them");
  Example example;
  if (text) {
    example.text = text_at(object, "text", place);
  } else if (completion) {
    example.kind = Example::Kind::completion;
    example.prompt = text_at(object, "prompt", place);
    example.text = text_at(object, "completion", place);
  } else {
    example.kind = Example::Kind::messages;
    example.messages = messages_at(object, place);
  }
  return example;
}

ChatTemplate::Rendered ExampleEncoder::encode(const Example& example,
                                              const std::string& place) const {
  if (example.kind == Example::Kind::messages) {
    AXONN_CHECK(chat_, place, ": messages without a chat template");
    if (const std::string why = chat_->fault(example.messages, false); !why.empty())
      refuse(place, ": ", why);
    return chat_->render(example.messages);
  }
  const bool completes = example.kind == Example::Kind::completion;
  ChatTemplate::Rendered out;
  out.tokens = tokenizer_->encode_prompt(example.prompt);
  out.learned.resize(out.tokens.size(), false);
  tokenizer_->encode_into(example.text, out.tokens, {.continues = completes});
  if (const auto end = tokenizer_->end_of_text();
      end && (out.tokens.empty() || out.tokens.back() != *end))
    out.tokens.push_back(*end);
  out.learned.resize(out.tokens.size(), true);
  return out;
}

std::string ExampleEncoder::fingerprint() const {
  return concat(tokenizer_->fingerprint(), chat_ ? chat_->fingerprint() : "");
}

}  // namespace axonn
