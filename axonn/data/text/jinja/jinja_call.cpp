#include "axonn/data/text/jinja/jinja_call.h"

#include <algorithm>

namespace axonn::jinja {

void Session::charge(std::size_t bytes) {
  steps += 1 + static_cast<std::int64_t>(bytes / 16);
  if (steps > most_steps) refuse("the template takes more than ", most_steps, " steps");
}

const Function* find_function(std::span<const Function> functions, std::string_view name) {
  const auto found = std::ranges::find(functions, name, &Function::name);
  return found == functions.end() ? nullptr : &*found;
}

Value call_function(const Function& function, Session& session, const Value& self,
                    const Arguments& arguments) {
  session.charge(self.cost());
  Value result = function.run(session, self, Parameters(function, arguments));
  session.charge(result.cost());
  return result;
}

Parameters::Parameters(const Function& function, const Arguments& arguments)
    : function_(function), arguments_(arguments) {
  if (function.parameters[0] == "*") return;
  const std::span names(function.parameters.begin(), std::ranges::find(function.parameters, ""));
  if (arguments.positional.size() > names.size())
    refuse(function.name, " takes at most ", names.size(), " arguments, got ",
           arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    found_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) refuse(function.name, " has no parameter '", name, "'");
    const Value*& slot = found_[static_cast<std::size_t>(at - names.begin())];
    if (slot) refuse(function.name, ": the argument '", name, "' is given twice");
    slot = &value;
  }
}

const Value* Parameters::some(std::size_t i) const {
  return found_[i] && !found_[i]->is_none() ? found_[i] : nullptr;
}

const Value& Parameters::need(std::size_t i) const {
  if (!found_[i])
    refuse(function_.name, ": the argument '", function_.parameters[i], "' is missing");
  return *found_[i];
}

bool Parameters::flag(std::size_t i, bool otherwise) const {
  return found_[i] ? found_[i]->truth() : otherwise;
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t otherwise) const {
  return found_[i] ? need_integer(*found_[i], function_.name) : otherwise;
}

const Text& Parameters::text(std::size_t i) const { return need_text(need(i), function_.name); }

Value Callable::member(std::string_view name) const {
  return Value::undefined(concat("a function has no attribute '", name, "'"));
}

const Text& need_text(const Value& value, std::string_view function) {
  if (const Text* text = value.text()) return *text;
  if (const auto* undefined = value.as<Undefined>(); undefined && undefined->why)
    refuse(*undefined->why);
  refuse(function, " needs a str, not a ", value.type_name());
}

std::int64_t need_integer(const Value& value, std::string_view function) {
  if (const auto* number = value.as<std::int64_t>()) return *number;
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* undefined = value.as<Undefined>(); undefined && undefined->why)
    refuse(*undefined->why);
  refuse(function, " needs an int, not a ", value.type_name());
}

}  // namespace axonn::jinja
