#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Escapes a text for HTML or SVG, between tags or in a quoted attribute. & < > and quotes become
/// references, ASCII control characters but newlines and tabs become their pictures (U+2400 to
/// U+2421), and invalid UTF-8 and characters that HTML forbids become U+FFFD.
std::string escaped(std::string_view text);
std::string escaped(std::u32string_view points);

}  // namespace axonn
