#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace axonn {

/// What stands at the front of a text. Well-formed is as in the Unicode standard, table 3-7: no
/// overlong forms, no surrogates, nothing above U+10FFFF.
struct Utf8Front {
  enum class Kind { complete, incomplete, invalid };
  Kind kind;
  std::size_t bytes;  ///< of the character; if incomplete, those that are there; if invalid, 1
};

/// The first character of a text that is not empty.
Utf8Front utf8_front(std::string_view text);

/// Bytes of the longest prefix that is well-formed UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

/// Bytes at the end (0 to 3) that begin a character and may be completed by what follows.
std::size_t incomplete_utf8_suffix(std::string_view text);

/// For showing on one line: invalid bytes become U+FFFD, control characters \n, \t or \xNN.
std::string printable(std::string_view text);

}  // namespace axonn
