#include "axonn/data/text/chat/conversation.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "axonn/data/text/chat/content_parts.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/json_extent.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Value;

// The roles of published templates.
constexpr std::array<std::string_view, 13> kRoles{
    "system", "developer", "user",       "assistant",    "tool",    "function",   "ipython",
    "model",  "chatbot",   "tool_calls", "tool_results", "context", "observation"};

/// Builds the values of a JSON text.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `other`: the origin of texts that are in no message.
  explicit ValueBuilder(Origin other) : other_(other) {}

  bool null() override { return add(jinja::None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return add(jinja::LargeInteger{std::make_shared<const std::string>(std::to_string(value))});
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& written) override {
    if (written.find_first_of(".eE") == written.npos)
      return add(jinja::LargeInteger{std::make_shared<const std::string>(written)});
    return add(value);
  }
  bool string(std::string& value) override {
    const bool role = open_.size() == 3 && in_messages() && open_[2].key == "role" &&
                      std::ranges::find(kRoles, value) != kRoles.end();
    return add(Value(jinja::Text(value, role ? Origin{} : origin())));
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool key(std::string& key) override {
    open_.back().key = key;
    return true;
  }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

  Value take() { return std::move(root_); }

 private:
  struct Open {
    bool is_list;
    List list = {};
    Dict dict = {};
    std::string key = {};
  };

  bool in_messages() const {
    return open_.size() >= 2 && open_[0].key == "messages" && open_[1].is_list;
  }
  Origin origin() const {
    if (!in_messages()) return other_;
    return {.source = static_cast<std::int32_t>(open_[1].list.items.size())};
  }
  bool open(bool is_list) {
    open_.push_back({.is_list = is_list});
    return true;
  }
  bool close() {
    Open done = std::move(open_.back());
    const bool is_list = done.is_list;
    open_.pop_back();
    return add(is_list ? Value(std::move(done.list)) : Value(std::move(done.dict)));
  }
  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_list) {
      open_.back().list.items.push_back(std::move(value));
    } else {
      const Value key(jinja::Text(open_.back().key, origin()));
      open_.back().dict.set(key, std::move(value));
    }
    return true;
  }

  const Origin other_;
  std::vector<Open> open_;
  Value root_;
};

bool is_empty_list(const Value& value) { return value.list() && value.list()->items.empty(); }

/// Whether a message has a member besides role and content that says something.
bool has_more(const Dict& message) {
  return std::ranges::any_of(message.items(), [](const Dict::Item& item) {
    const auto& [key, value] = item;
    const std::string& name = key.text()->bytes();
    return name != "role" && name != "content" && !value.is_none() && !is_empty_list(value);
  });
}

std::string fault_of(const Value& message) {
  constexpr const char* kWanted =
      "wanted {\"role\": \"...\", \"content\": \"...\"}; content is a string or a list of parts, "
      "each {\"type\": \"text\", \"text\": \"...\"}";
  const Dict* members = message.dict();
  const Value* role = members ? members->find("role") : nullptr;
  if (!role || !role->text()) return kWanted;
  const Value* content = members->find("content");
  if (!content || content->is_none()) return has_more(*members) ? "" : kWanted;
  if (content->text()) return "";
  const bool is_tool = role->text()->bytes() == "tool";
  if (!content->list()) return is_tool ? "" : kWanted;
  return fault_of_parts(*content->list(), is_tool);
}

/// A copy of the dict in which `key`, which it has, is `value`.
Value with(Dict dict, const char* key, Value value) {
  dict.set(key, std::move(value));
  return dict;
}

/// Templates name thoughts differently: sets those of the three names that are missing.
void fill_thoughts(Dict& message, Origin origin) {
  constexpr std::array<const char*, 3> kNames{"reasoning_content", "reasoning", "thinking"};
  std::optional<Value> thoughts;
  for (const char* name : kNames)
    if (const Value* found = message.find(name);
        !thoughts && found && found->text() && found->truth())
      thoughts = *found;
  if (!thoughts) return;
  for (const char* name : kNames)
    if (!message.find(name)) message.set(jinja::Text(name, origin), *thoughts);
}

}  // namespace

Conversation::Conversation(const std::vector<Message>& all) {
  for (const Message& message : all) {
    const bool known = std::ranges::find(kRoles, message.role) != kRoles.end();
    const Origin origin{.source = static_cast<std::int32_t>(messages.size())};
    Dict members;
    members.set("role", jinja::Text(message.role, known ? Origin{} : origin));
    members.set("content", jinja::Text(message.content, origin));
    messages.emplace_back(std::move(members));
    bytes += message.role.size() + message.content.size();
  }
}

Conversation Conversation::parse(const Dict& object, const std::string& location) {
  Members members(object);
  return parse(members, location);
}

Conversation Conversation::parse(Members& object, const std::string& location) {
  Conversation out;
  const Value* messages = object.find("messages");
  if (!messages || !messages->list()) refuse(location, ": \"messages\" is not a list");
  out.messages = messages->list()->items;
  for (std::size_t i = 0; i < out.messages.size(); ++i)
    if (const std::string why = fault_of(out.messages[i]); !why.empty())
      refuse(location, ": message ", i + 1, ": ", why);
  if (const Value* tools = object.find("tools")) {
    std::optional<Value> list = *tools;
    if (const jinja::Text* text = tools->text()) list = parse_chat_json(text->bytes());
    if (!list || !list->list()) refuse(location, ": \"tools\" is not a list");
    out.variables.emplace_back("tools", *list);
  }
  if (const Value* documents = object.find("documents")) {
    if (!documents->list()) refuse(location, ": \"documents\" is not a list");
    out.variables.emplace_back("documents", *documents);
  }
  if (const Value* more = object.find("chat_template_kwargs")) {
    if (!more->dict()) refuse(location, ": \"chat_template_kwargs\" is not an object");
    for (const auto& [name, value] : more->dict()->items())
      out.variables.emplace_back(name.text()->bytes(), value);
  }
  return out;
}

void Conversation::normalize() {
  std::erase_if(variables, [](const auto& variable) {
    const auto& [name, value] = variable;
    return (name == "tools" || name == "documents") && (value.is_none() || is_empty_list(value));
  });
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Origin origin{.source = static_cast<std::int32_t>(i)};
    const Dict& given = *messages[i].dict();
    Dict message;
    for (const auto& [key, value] : given.items()) {
      const std::string& name = key.text()->bytes();
      const bool calls = name == "tool_calls";
      // Templates tell a turn that only calls by its content, which is null.
      if (name != "content" && (value.is_none() || (calls && is_empty_list(value)))) continue;
      message.set(key, value);
    }
    fill_thoughts(message, origin);
    messages[i] = std::move(message);
  }
}

std::string Conversation::text(std::size_t i, std::string_view member) const {
  const Value* found = messages[i].dict()->find(member);
  return found && found->text() ? found->text()->bytes() : "";
}

void Conversation::set_member(std::size_t i, const char* member, Value value) {
  messages[i] = with(*messages[i].dict(), member, std::move(value));
}

std::optional<Value> parse_chat_json(std::string_view text, Origin other) {
  ValueBuilder builder(other);
  if (json_extent(text).depth > Value::kMostDepth) return {};
  if (!nlohmann::json::sax_parse(text, &builder)) return {};
  return builder.take();
}

ChatArguments parse_chat_arguments(const std::string& json, const std::string& key) {
  ChatArguments out;
  if (json.empty()) return out;
  const std::size_t valid = valid_utf8_prefix(json);
  const std::optional<Value> all =
      valid == json.size() ? parse_chat_json(json, Origin{}) : std::nullopt;
  if (!all || !all->dict())
    refuse(key, " is no JSON object such as {\"enable_thinking\": false}: ",
           printable(json.substr(0, 80)));
  for (const auto& [name, value] : all->dict()->items()) {
    const std::string& variable = name.text()->bytes();
    for (const char* own : {"messages", "tools", "documents", "add_generation_prompt"})
      if (variable == own) refuse(key, " cannot set '", own, "', which is part of a conversation");
    if (variable != kDateArgument)
      out.variables.emplace_back(variable, value);
    else
      out.now = parse_chat_date(value.text() ? value.text()->bytes() : "", key);
  }
  return out;
}

std::tm parse_chat_date(const std::string& text, const std::string& key) {
  std::tm date{};
  int year = 0, month = 0, day = 0;
  const auto number = [&](std::size_t at, std::size_t size, int& value) {
    const char *begin = text.data() + at, *end = begin + size;
    return std::from_chars(begin, end, value).ptr == end;
  };
  if (text.size() != 10 || text[4] != '-' || text[7] != '-' || !number(0, 4, year) ||
      !number(5, 2, month) || !number(8, 2, day) || month < 1 || month > 12 || day < 1 || day > 31)
    refuse(key, ": strftime_now must be a date such as \"2024-07-26\"");
  date.tm_year = year - 1900;
  date.tm_mon = month - 1;
  date.tm_mday = day;
  date.tm_hour = 12;
  date.tm_isdst = -1;
  std::mktime(&date);  // sets the day of the week
  return date;
}

}  // namespace axonn
