#include <utility>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/app/serve/translated_chat.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using MessagesJson = nlohmann::ordered_json;

constexpr const char *kTurns = "messages", *kSystem = "system", *kCalled = "tools",
                     *kChoice = "tool_choice", *kEnds = "stop_sequences";

std::string text_of_block(const MessagesJson& block, const char* name) {
  return text_member(kTurns, "a block", block, name);
}

/// A content of text alone: a text, or blocks of type text.
MessagesJson text_content(const char* key, const MessagesJson& content) {
  return text_parts(key, "a block", content, {"text"},
                    "only blocks of type text are supported here");
}

/// Adds the messages of a chat that a turn stands for: results of tools, then the rest.
void add_turn(const MessagesJson& turn, MessagesJson& chat) {
  const MessagesJson role = member_of(turn, "role"), content = member_of(turn, "content");
  if (role != "user" && role != "assistant")
    reject_key(kTurns, "wanted the role user or assistant, got ", shown_value(role),
               "; the system's text is in system");
  if (!content.is_array()) {
    chat.push_back({{"role", role}, {"content", content}});
    return;
  }
  MessagesJson message{{"role", role}}, texts = MessagesJson::array();
  for (const MessagesJson& block : content) {
    const MessagesJson type = member_of(block, "type");
    if (type == "tool_result" && role == "user")
      chat.push_back({{"role", "tool"},
                      {"tool_call_id", text_of_block(block, "tool_use_id")},
                      {"content", text_content(kTurns, member_of(block, "content"))}});
    else if (type == "tool_use" && role == "assistant")
      message["tool_calls"].push_back({{"id", text_of_block(block, "id")},
                                       {"type", "function"},
                                       {"function",
                                        {{"name", text_of_block(block, "name")},
                                         {"arguments", dumped(member_of(block, "input"))}}}});
    else if (type == "thinking" && role == "assistant")
      message["reasoning_content"] = text_of_block(block, "thinking");
    else
      texts.push_back(block);
  }
  if (!texts.empty()) message["content"] = text_content(kTurns, texts);
  if (message.size() > 1) chat.push_back(std::move(message));
}

MessagesJson turns_of_chat(const MessagesJson& request) {
  const MessagesJson turns = member_of(request, kTurns), system = member_of(request, kSystem);
  MessagesJson chat = MessagesJson::array();
  if (!system.is_null())
    chat.push_back({{"role", "system"}, {"content", text_content(kSystem, system)}});
  if (!turns.is_array() || turns.empty()) reject_key(kTurns, "wanted a list of messages");
  for (const MessagesJson& turn : turns) add_turn(turn, chat);
  return chat;
}

MessagesJson tools_of_chat(const MessagesJson& tools) {
  if (!tools.is_array()) reject_key(kCalled, "wanted a list of tools");
  MessagesJson all = MessagesJson::array();
  for (const MessagesJson& tool : tools) {
    const MessagesJson type = member_of(tool, "type");
    if (!type.is_null() && type != "custom")
      reject_key(kCalled, "only tools of the client are supported, got ", shown_value(type));
    MessagesJson function{{"name", member_of(tool, "name")}};
    if (tool.contains("description")) function["description"] = tool["description"];
    function["parameters"] = member_of(tool, "input_schema");
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

/// Translates the choice, and whether there may be several calls.
void choose_tools(const MessagesJson& choice, MessagesJson& chat) {
  const MessagesJson type = member_of(choice, "type");
  if (type == "auto" || type == "none")
    chat[kChoice] = type;
  else if (type == "any")
    chat[kChoice] = "required";
  else if (type == "tool")
    chat[kChoice] = {{"type", "function"}, {"function", {{"name", member_of(choice, "name")}}}};
  else
    reject_key(kChoice, "wanted an object of the type auto, any, tool or none");
  const MessagesJson single = member_of(choice, "disable_parallel_tool_use");
  if (!single.is_null() && !single.is_boolean())
    reject_key(kChoice, "wanted true or false as disable_parallel_tool_use");
  if (single == true) chat["parallel_tool_calls"] = false;
}

/// The same request to /v1/chat/completions.
MessagesJson chat_of_messages(MessagesJson request) {
  if (member_of(request, "max_tokens").is_null())
    reject_key("max_tokens", "wanted a whole number; it is missing");
  MessagesJson chat{{kTurns, turns_of_chat(request)}};
  if (member_of(request[kTurns].back(), "role") == "assistant")
    chat["continue_final_message"] = true;
  const MessagesJson tools = member_of(request, kCalled), choice = member_of(request, kChoice),
                     ends = member_of(request, kEnds);
  if (!tools.is_null()) chat[kCalled] = tools_of_chat(tools);
  if (!choice.is_null()) choose_tools(choice, chat);
  if (!ends.is_null() && !ends.is_array()) reject_key(kEnds, "wanted a list of texts");
  if (ends.is_array() && !ends.empty()) chat["stop"] = ends;
  for (const char* read : {kTurns, kSystem, kCalled, kChoice, kEnds, "metadata"})
    request.erase(read);
  for (const auto& [key, value] : request.items()) chat[key] = value;
  return chat;
}

std::string messages_key(const std::string& of_chats) {
  if (of_chats == "parallel_tool_calls") return kChoice;
  return of_chats == "stop" ? kEnds : of_chats;
}

std::string stop_sequences(const MessagesJson& request) {
  return dumped(member_of(request, kEnds));
}

}  // namespace

CompletionRequest parse_messages(const std::string& text, const ServedModel& model) {
  return parse_translated(text, model,
                          {RequestKind::message, chat_of_messages, messages_key, stop_sequences});
}

}  // namespace axonn
