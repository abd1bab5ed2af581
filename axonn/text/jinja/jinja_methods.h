#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "axonn/text/jinja/jinja_call.h"

namespace axonn::jinja {

/// value.name as the sandbox of Jinja evaluates it: undefined if there is none.
Value member_of(const Value& value, std::string_view name);
/// Whether some value has a method of this name, or one that changes it, which is refused when it
/// is called.
bool is_method(std::string_view name);
/// A method of str; nullptr if there is none.
const Function* text_method(std::string_view name);

/// The functions of the environment: "range", "namespace", "raise_exception", "strftime_now".
std::vector<std::pair<std::string_view, Value>> global_functions();

}  // namespace axonn::jinja
