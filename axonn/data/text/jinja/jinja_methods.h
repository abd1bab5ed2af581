#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_call.h"

namespace axonn::jinja {

/// value.name as the sandbox of Jinja evaluates it: undefined if there is none.
Value member_of(const Value& value, std::string_view name);
/// Throws if a namespace cannot have a member of this name, as in transformers.
void check_namespace_member(std::string_view name);
/// A method of str; nullptr if there is none.
const Function* text_method(std::string_view name);

/// The functions of the environment: "range", "namespace", "raise_exception", ...
std::vector<std::pair<std::string_view, Value>> global_functions();

}  // namespace axonn::jinja
