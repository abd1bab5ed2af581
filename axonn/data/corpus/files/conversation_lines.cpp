#include "axonn/data/corpus/files/conversation_lines.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/chat/conversation.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

constexpr std::string_view kCalls = "tool_calls";  // the role of a turn that calls functions

/// A value of "from", and the role of such a message.
struct Speaker {
  std::string_view from, role;
};
constexpr std::array<Speaker, 16> kSpeakers = {{{"human", "user"},
                                                {"user", "user"},
                                                {"gpt", "assistant"},
                                                {"assistant", "assistant"},
                                                {"model", "assistant"},
                                                {"chatgpt", "assistant"},
                                                {"bing", "assistant"},
                                                {"bard", "assistant"},
                                                {"system", "system"},
                                                {"tool", "tool"},
                                                {"function", "tool"},
                                                {"observation", "tool"},
                                                {"function_response", "tool"},
                                                {"tool_response", "tool"},
                                                {"function_call", kCalls},
                                                {"tool_call", kCalls}}};

/// The text under a key of a line; "" if there is none. Throws if it is no text.
std::string text_of(Members& line, const char* key, const std::string& location) {
  const Value* found = line.find(key);
  if (!found) return "";
  if (!found->text()) refuse(location, ": \"", key, "\" is not a string");
  return found->text()->bytes();
}

/// {"type": "function", "function": function}, as templates expect.
Dict wrapped(const Value& function, Origin origin) {
  Dict object;
  object.set("type", Text("function", origin));
  object.set("function", function);
  return object;
}

/// The messages of a line. Texts have the origins that parse_chat_json() gives those of "messages".
class MessageList {
 public:
  void add(std::string_view role, std::string_view content) {
    Dict message;
    message.set("role", Text(role));
    message.set("content", Text(content, origin()));
    list_.items.emplace_back(std::move(message));
  }

  /// Adds a turn that calls functions: `calls` is the JSON of one or of a list of them.
  void add_calls(const std::string& calls, const std::string& location) {
    const std::optional<Value> parsed = parse_chat_json(calls, origin());
    List found;
    for (const Value& call : parsed && parsed->list() ? parsed->list()->items : one_of(parsed)) {
      const Value* name = call.dict() ? call.dict()->find("name") : nullptr;
      if (!name || !name->text() || !call.dict()->find("arguments"))
        refuse(location,
               ": a function call must be the JSON of {\"name\": ..., \"arguments\": {...}}",
               ", or of a list of them; got ", printable(calls.substr(0, 60)));
      found.items.emplace_back(wrapped(call, origin()));
    }
    Dict message;
    message.set("role", Text("assistant"));
    message.set("content", Text("", origin()));
    message.set("tool_calls", std::move(found));
    list_.items.emplace_back(std::move(message));
  }

  /// Sets a member of the last message.
  void set(std::string_view member, const Value& value) {
    Dict message = *list_.items.back().dict();
    message.set(Text(member, origin_of_last()), value);
    list_.items.back() = std::move(message);
  }

  List take() { return std::move(list_); }

 private:
  static std::vector<Value> one_of(const std::optional<Value>& value) {
    return {value.value_or(Value())};
  }
  Origin origin() const { return {.source = static_cast<std::int32_t>(list_.items.size())}; }
  Origin origin_of_last() const { return {.source = origin().source - 1}; }

  List list_;
};

/// The object that Conversation::parse() reads.
Dict object_of(MessageList messages) {
  Dict object;
  object.set("messages", messages.take());
  return object;
}

/// The text of an entry under one of two names; null if it has none.
const Text* text_in(Members& entry, const char* name, const char* other) {
  const Value* found = entry.find(name);
  if (const Value* second = entry.find(other); !found) found = second;
  return found ? found->text() : nullptr;
}

const Text* from_in(Members& entry) { return text_in(entry, "from", "role"); }

bool is_system(const Value& entry) {
  if (!entry.dict()) return false;
  Members members(*entry.dict());
  const Text* from = from_in(members);
  return from && from->bytes() == "system";
}

void add_entry(const Value& entry, const std::string& location, MessageList& to) {
  static const Dict kNone;
  Members members(entry.dict() ? *entry.dict() : kNone);
  const Text *from = from_in(members), *value = text_in(members, "value", "content");
  if (!from || !value) refuse(location, R"(: wanted {"from": "...", "value": "..."})");
  const auto speaker = std::ranges::find(kSpeakers, from->bytes(), &Speaker::from);
  if (speaker == kSpeakers.end()) {
    std::string names;
    for (const Speaker& known : kSpeakers) names += concat(names.empty() ? "" : ", ", known.from);
    refuse(location, " is from '", printable(from->bytes().substr(0, 80)), "'; known are ", names);
  }
  if (speaker->role == kCalls)
    to.add_calls(value->bytes(), location);
  else
    to.add(speaker->role, value->bytes());
  // read_message_keys() reads these: whether it is learned, and what is not known.
  for (const std::string& name : members.unread()) to.set(name, *members.peek(name));
}

/// A list of tools in which each is {"type": "function", "function": {...}}, as templates expect;
/// LLaMA-Factory's data has the inner objects alone.
Value wrapped_tools(const Value& tools, const std::string& location) {
  std::optional<Value> list = tools;
  if (tools.text()) list = parse_chat_json(tools.text()->bytes());
  if (!list || !list->list()) refuse(location, ": \"tools\" is not a list");
  List all;
  for (const Value& tool : list->list()->items) {
    if (tool.dict() && tool.dict()->find("name") && !tool.dict()->find("function")) {
      all.items.emplace_back(wrapped(tool, Origin{.source = Origin::kData}));
    } else {
      all.items.push_back(tool);
    }
  }
  return all;
}

}  // namespace

Dict from_sharegpt(Members& line, const std::string& location) {
  const Value* entries = line.find("conversations");
  if (!entries || !entries->list()) refuse(location, ": \"conversations\" is not a list");
  MessageList messages;
  const std::vector<Value>& items = entries->list()->items;
  const bool has_system = !items.empty() && is_system(items.front());
  if (const std::string system = text_of(line, "system", location); !system.empty() && !has_system)
    messages.add("system", system);
  for (std::size_t i = 0; i < items.size(); ++i)
    add_entry(items[i], concat(location, ": entry ", i + 1, " of \"conversations\""), messages);
  Dict object = object_of(std::move(messages));
  if (const Value* tools = line.find("tools"); tools && !(tools->text() && tools->text()->empty()))
    object.set("tools", wrapped_tools(*tools, location));
  return object;
}

Dict from_prompt_messages(Members& line, const std::string& location) {
  List messages;
  for (const char* key : {"prompt", "completion"}) {
    const Value* found = line.find(key);
    if (!found || !found->list() || found->list()->items.empty())
      refuse(location, ": \"", key, "\" is not a list of messages, as ",
             *key == 'p' ? "the completion" : "the prompt", " is; both must be lists, or strings");
    for (const Value& message : found->list()->items) {
      messages.items.push_back(message);
      const Value* role = message.dict() ? message.dict()->find("role") : nullptr;
      if (*key != 'p' || !role || !role->text() || role->text()->bytes() != "assistant") continue;
      Dict context = *message.dict();
      context.set("weight", std::int64_t{0});
      messages.items.back() = std::move(context);
    }
  }
  Dict object;
  object.set("messages", std::move(messages));
  for (const char* key : {"tools", "documents", "chat_template_kwargs"})
    if (const Value* found = line.find(key)) object.set(key, *found);
  // Parsed again, so that every text has its message as its origin.
  return *parse_chat_json(jinja::to_json(object, {}).bytes())->dict();
}

Dict from_alpaca(Members& line, const std::string& location) {
  MessageList messages;
  if (const std::string system = text_of(line, "system", location); !system.empty())
    messages.add("system", system);
  if (const Value* history = line.find("history")) {
    if (!history->list()) refuse(location, ": \"history\" is not a list");
    for (const Value& turn : history->list()->items) {
      const List* pair = turn.list();
      if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text())
        refuse(location, ": \"history\" must be a list of pairs [question, answer] of strings");
      messages.add("user", pair->items[0].text()->bytes());
      messages.add("assistant", pair->items[1].text()->bytes());
    }
  }
  if (!line.find("output"))
    refuse(location,
           ": \"output\" is missing; a line of alpaca's format has \"instruction\" and "
           "\"output\"");
  const std::string instruction = text_of(line, "instruction", location),
                    input = text_of(line, "input", location);
  messages.add("user", instruction + (instruction.empty() || input.empty() ? "" : "\n") + input);
  messages.add("assistant", text_of(line, "output", location));
  return object_of(std::move(messages));
}

}  // namespace axonn
