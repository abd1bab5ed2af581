#pragma once

#include <string>

namespace axonn::testing_support {

/// What is wrong with the tags of a text of elements, attributes and character data; "" if nothing.
std::string tag_fault(const std::string& text);

}  // namespace axonn::testing_support
