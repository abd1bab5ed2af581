#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

/// ASCII white space, as Python's strip() removes it.
inline constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

/// A letter of ASCII in lower case; every other byte as it is, whatever the locale.
constexpr char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
/// The same of each byte of a text.
std::string lower_ascii(std::string_view text);

/// The character at the front of a text. UTF-8 is well-formed as in the Unicode standard, table
/// 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
struct Utf8Front {
  enum class Kind { complete, incomplete, invalid };
  Kind kind;
  std::size_t bytes;  ///< of the character; if incomplete, its bytes so far; if invalid, 1
};

/// The first character of a text, which must not be empty.
Utf8Front utf8_front(std::string_view text);
/// The code point of that character; U+FFFD if it is not complete.
char32_t code_point(std::string_view text);

/// Appends a character as UTF-8.
void append_utf8(char32_t c, std::string& to);

/// The number of code points of well-formed UTF-8.
std::int64_t code_points(std::string_view text);

/// The length in bytes of the longest prefix that is well-formed UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

/// The number of bytes at the end (0 to 3) that are an unfinished character.
std::size_t incomplete_utf8_suffix(std::string_view text);

/// For display on one line: invalid bytes become U+FFFD, control characters \n, \t or \xNN.
std::string printable(std::string_view text);

/// printable() with a backslash as \\, so that a newline and the text \n differ.
std::string escaped(std::string_view text);

/// printable() for text of any length on a terminal. Keeps the control characters that our output
/// uses: \n, \t, \r and the sequence that clears a line. So text of others cannot command the
/// terminal.
std::string harmless(std::string_view text);

/// Approximate columns of a text on a terminal: East Asian characters and pictographs take two,
/// combining marks none.
int utf8_columns(std::string_view text);

/// Cuts a text that is wider than `columns` (at least 3), and then ends it with "...".
std::string shortened(std::string_view text, int columns);

}  // namespace axonn
