#include "axonn/data/text/chat/tool_arguments.h"

#include <utility>

#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

bool is_blank(const Value& arguments) {
  const Text* text = arguments.text();
  return arguments.is_none() ||
         (text && text->bytes().find_first_not_of(kWhiteSpace) == std::string::npos);
}

Value as_object(const Value& arguments, Origin origin) {
  if (is_blank(arguments)) return Dict();
  if (!arguments.text()) return arguments;
  const std::optional<Value> parsed = parse_chat_json(arguments.text()->bytes(), origin);
  if (parsed && parsed->is_none()) return Dict();
  return parsed && parsed->dict() ? *parsed : arguments;
}

Value as_text(const Value& arguments, Origin origin) {
  if (is_blank(arguments)) return Text("{}", origin);
  if (arguments.text()) return arguments;
  return Text(jinja::to_json(arguments, {}).bytes(), origin);
}

Value in_form(ArgumentsForm form, const Value& arguments, Origin origin) {
  if (form == ArgumentsForm::object) return as_object(arguments, origin);
  if (form == ArgumentsForm::text) return as_text(arguments, origin);
  return is_blank(arguments) ? Value(Dict()) : arguments;
}

Value changed(Dict dict, const char* key, Value value) {
  dict.set(key, std::move(value));
  return dict;
}

}  // namespace

List calls_in(ArgumentsForm form, const List& calls, Origin origin) {
  List all;
  for (const Value& call : calls.items) {
    const Value* function = call.dict() ? call.dict()->find("function") : nullptr;
    const Dict* inner = function ? function->dict() : call.dict();  // some data have no "function"
    const Value* arguments = inner ? inner->find("arguments") : nullptr;
    if (!arguments) {
      all.items.push_back(call);
      continue;
    }
    Value named = changed(*inner, "arguments", in_form(form, *arguments, origin));
    all.items.push_back(function ? changed(*call.dict(), "function", std::move(named))
                                 : std::move(named));
  }
  return all;
}

ArgumentsForm find_arguments_form(
    const std::function<std::optional<std::string>(const Conversation&)>& rendered) {
  constexpr const char* kCalls = R"([{"id": "call00001", "type": "function",
                                      "function": {"name": "f", "arguments": {"city": "Bonn"}}}])";
  const Value calls = *parse_chat_json(kCalls);
  Conversation probe({{"user", "Hi"}, {"assistant", ""}});
  probe.now = parse_chat_date("2024-07-26", "");  // any day
  probe.set_member(1, "content", jinja::None{});
  const auto with = [&](ArgumentsForm form) {
    probe.set_member(1, "tool_calls", calls_in(form, *calls.list(), Origin{.source = 1}));
    return rendered(probe);
  };
  const auto shows = [](const std::optional<std::string>& text, const char* arguments) {
    return text && text->find(arguments) != text->npos;
  };
  const auto of_object = with(ArgumentsForm::object);
  const bool reads_objects = shows(of_object, "Bonn") && !shows(of_object, "{'city'");
  if (reads_objects || !shows(with(ArgumentsForm::text), R"({"city": "Bonn"})"))
    return ArgumentsForm::object;
  return shows(of_object, "{'city'") ? ArgumentsForm::either : ArgumentsForm::text;
}

}  // namespace axonn
