#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// A text for HTML or SVG, between tags or in a quoted attribute: & < > and quotes are references;
/// what is not UTF-8 is U+FFFD, and so is what HTML forbids; control characters are their pictures
/// (U+2400 to U+2421), but lines and tabs stay.
std::string escaped(std::string_view text);
std::string escaped(std::u32string_view points);

}  // namespace axonn
