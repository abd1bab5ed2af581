#pragma once

#include <string>
#include <string_view>

#include "axonn/data/text/jinja/jinja_program.h"

namespace axonn::jinja {

/// Parses a template of `file`, a name for messages. Throws UsageError with file, line and column
/// for a fault, and for what is not supported: other statements than if, for, set, macro, filter,
/// generation, break and continue; filters, tests and methods that find_filter(), find_test() and
/// is_method() do not know.
Program parse(std::string_view source, const std::string& file);

}  // namespace axonn::jinja
