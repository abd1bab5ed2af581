#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// What stands inside a class of PCRE2 for \p{property}, or \P{property}, of this program's own
/// tables (unicode/properties.h): the property, where PCRE2 has the same characters; the property
/// and the characters that PCRE2 does not know yet; or all characters. So the characters do not
/// depend on the version of PCRE2. Empty if the property is unknown.
std::string class_items(std::string_view property, bool negated);

}  // namespace axonn
