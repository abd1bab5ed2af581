#pragma once

#include <string>

namespace axonn::testing_support {

/// Returns the first error in the tags of a text of elements, attributes and character data; "" if
/// there is none.
std::string tag_fault(const std::string& text);

}  // namespace axonn::testing_support
