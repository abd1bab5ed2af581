#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/app/serve/translated_chat.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using ResponsesJson = nlohmann::ordered_json;

constexpr const char *kItems = "input", *kFunctions = "tools", *kToolChoice = "tool_choice",
                     *kTextFormat = "text", *kReasoning = "reasoning";

std::string text_in(const ResponsesJson& item, const char* name) {
  return text_member(kItems, "an item", item, name);
}

ResponsesJson chat_content(const ResponsesJson& content) {
  return text_parts(kItems, "an item", content, {"input_text", "output_text", "reasoning_text"},
                    "only parts of type input_text and output_text are supported");
}

/// The messages of a chat that items stand for. The thought, text and calls of a turn of the
/// assistant become one message.
class ChatOfItems {
 public:
  void add(const ResponsesJson& item) {
    const ResponsesJson type = member_of(item, "type");
    if (type == "function_call")
      turn("tool_calls")["tool_calls"].push_back(
          {{"id", member_of(item, "call_id")},
           {"type", "function"},
           {"function",
            {{"name", text_in(item, "name")}, {"arguments", text_in(item, "arguments")}}}});
    else if (type == "function_call_output")
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", text_in(item, "call_id")},
                           {"content", chat_content(member_of(item, "output"))}});
    else if (type == "reasoning")
      add_thought(item);
    else if (type.is_null() || type == "message")
      add_message(item);
    else
      reject_key(kItems,
                 "only items of type message, function_call, function_call_output and reasoning "
                 "are supported, got ",
                 shown_value(type));
  }
  ResponsesJson take() { return std::move(messages_); }

 private:
  void add_message(const ResponsesJson& item) {
    const ResponsesJson role = member_of(item, "role"),
                        content = chat_content(member_of(item, "content"));
    if (role == "assistant")
      turn("content")["content"] = content;
    else
      messages_.push_back({{"role", role}, {"content", content}});
  }

  void add_thought(const ResponsesJson& item) {
    if (!member_of(item, "encrypted_content").is_null())
      reject_key(kItems, "encrypted_content is not understood; send the content of reasoning");
    std::string thought;
    for (const ResponsesJson& part : chat_content(member_of(item, "content")))
      thought += text_in(part, "text");
    if (!thought.empty()) turn("reasoning_content")["reasoning_content"] = thought;
  }

  /// The message of the assistant's turn, if `next` may still come in it, or a new one.
  ResponsesJson& turn(std::string_view next) {
    constexpr std::array<std::string_view, 3> kOrder{"reasoning_content", "content", "tool_calls"};
    const ResponsesJson last = messages_.empty() ? ResponsesJson::object() : messages_.back();
    const bool ended =
        next != "tool_calls" &&
        std::any_of(std::ranges::find(kOrder, next), kOrder.end(),
                    [&](std::string_view part) { return last.contains(std::string(part)); });
    if (ended || member_of(last, "role") != "assistant")
      messages_.push_back({{"role", "assistant"}});
    return messages_.back();
  }

  ResponsesJson messages_ = ResponsesJson::array();
};

ResponsesJson chat_messages(const ResponsesJson& request) {
  const ResponsesJson input = member_of(request, kItems),
                      instructions = member_of(request, "instructions");
  ChatOfItems chat;
  if (!instructions.is_null() && !instructions.is_string())
    reject_key("instructions", "wanted a text");
  if (instructions.is_string()) chat.add({{"role", "system"}, {"content", instructions}});
  if (input.is_string())
    chat.add({{"role", "user"}, {"content", input}});
  else if (input.is_array() && !input.empty())
    for (const ResponsesJson& item : input) chat.add(item);
  else
    reject_key(kItems, "wanted a text or a list of items");
  return chat.take();
}

/// Functions, whose members chats have in a member of their own.
ResponsesJson chat_tools(const ResponsesJson& tools) {
  if (!tools.is_array()) reject_key(kFunctions, "wanted a list of functions");
  ResponsesJson all = ResponsesJson::array();
  for (ResponsesJson tool : tools) {
    const ResponsesJson type = member_of(tool, "type");
    if (type != "function")
      reject_key(kFunctions, "only functions are supported, got ", shown_value(type));
    tool.erase("type");
    all.push_back({{"type", "function"}, {"function", std::move(tool)}});
  }
  return all;
}

ResponsesJson chat_tool_choice(const ResponsesJson& choice) {
  if (!choice.is_object()) return choice;
  if (member_of(choice, "type") != "function")
    reject_key(kToolChoice, "only auto, none, required and a function's name are supported");
  return {{"type", "function"}, {"function", {{"name", member_of(choice, "name")}}}};
}

/// The response_format of text.format; null if there is none.
ResponsesJson chat_format(const ResponsesJson& text) {
  if (!text.is_object()) reject_key(kTextFormat, "wanted an object such as {\"format\": {...}}");
  for (const auto& [name, value] : text.items())
    if (name != "format" && !value.is_null() && !(name == "verbosity" && value == "medium"))
      reject_key(kTextFormat, "only its member format is supported");
  const ResponsesJson format = member_of(text, "format");
  if (member_of(format, "type") != "json_schema") return format;
  return {{"type", "json_schema"}, {"json_schema", format}};
}

ResponsesJson chat_effort(const ResponsesJson& reasoning) {
  if (!reasoning.is_object())
    reject_key(kReasoning, "wanted an object such as {\"effort\": \"low\"}");
  for (const auto& [name, value] : reasoning.items())
    if (name != "effort" && !value.is_null() && value != "auto")
      reject_key(kReasoning, "only its member effort is supported; answers have whole thoughts");
  return member_of(reasoning, "effort");
}

/// Whether the answer is to have log-probabilities. Thoughts, which clients ask for as encrypted
/// content, come as text anyway.
bool includes_scores(const ResponsesJson& include) {
  constexpr std::string_view kScores = "message.output_text.logprobs";
  bool scores = false;
  for (const ResponsesJson& each : include.is_array() ? include : ResponsesJson{include}) {
    scores |= each == kScores;
    if (!each.is_null() && each != kScores && each != "reasoning.encrypted_content")
      reject_key("include", "only \"", kScores,
                 "\" and \"reasoning.encrypted_content\" are supported");
  }
  return scores;
}

/// A key that chats have under another name, and how its value is translated.
struct TranslatedKey {
  const char *key, *of_chats;
  ResponsesJson (*value)(const ResponsesJson&);
};
constexpr TranslatedKey kTranslated[] = {
    {kFunctions, "tools", chat_tools},
    {kToolChoice, "tool_choice", chat_tool_choice},
    {kTextFormat, "response_format", chat_format},
    {kReasoning, "reasoning_effort", chat_effort},
    {"max_output_tokens", "max_completion_tokens",
     [](const ResponsesJson& limit) { return limit; }},
};

/// The same request to /v1/chat/completions.
ResponsesJson chat_request(ResponsesJson request) {
  const bool scores = includes_scores(member_of(request, "include"));
  const ResponsesJson likeliest = member_of(request, "top_logprobs");
  if (!scores && !likeliest.is_null() && likeliest != 0)
    reject_key("top_logprobs", "it needs \"message.output_text.logprobs\" in include");
  ResponsesJson chat{{"messages", chat_messages(request)}, {"logprobs", scores}};
  for (const char* read : {kItems, "instructions", "include", "metadata"}) request.erase(read);
  for (const auto& [key, of_chats, value] : kTranslated) {
    const ResponsesJson given = member_of(request, key);
    request.erase(key);
    if (!given.is_null()) chat[of_chats] = value(given);
  }
  for (const auto& [key, value] : request.items()) chat[key] = value;
  return chat;
}

/// The members that the answer repeats.
std::string repeated_members(const ResponsesJson& request) {
  ResponsesJson members{{"instructions", nullptr},
                        {"max_output_tokens", nullptr},
                        {"metadata", ResponsesJson::object()},
                        {"parallel_tool_calls", true},
                        {"reasoning", nullptr},
                        {"temperature", 1.0},
                        {"text", {{"format", {{"type", "text"}}}}},
                        {"tool_choice", "auto"},
                        {"tools", ResponsesJson::array()},
                        {"top_logprobs", 0},
                        {"top_p", 1.0}};
  for (const auto& [name, value] : members.items())
    if (const ResponsesJson given = member_of(request, name.c_str()); !given.is_null())
      members[name] = given;
  return dumped(members);
}

/// The name here of a key of chats.
std::string responses_key(const std::string& of_chats) {
  if (of_chats == "messages") return kItems;
  if (of_chats == "max_tokens") return "max_output_tokens";
  for (const TranslatedKey& each : kTranslated)
    if (of_chats == each.of_chats) return each.key;
  return of_chats;
}

}  // namespace

CompletionRequest parse_responses(const std::string& text, const ServedModel& model) {
  return parse_translated(text, model,
                          {RequestKind::response, chat_request, responses_key, repeated_members});
}

}  // namespace axonn
