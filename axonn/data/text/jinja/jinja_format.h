#pragma once

#include "axonn/data/text/jinja/jinja_call.h"

namespace axonn::jinja {

/// str % values: a tuple, a dict for names in parentheses, or one value.
Text percent_format(const Text& format, const Value& values);

/// str.format(). Throws for attributes and items of arguments, "{0.a}", as the sandbox restricts
/// them.
Text brace_format(const Text& format, const Arguments& arguments);

}  // namespace axonn::jinja
