#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Properties of Unicode's characters, by ICU. no_characters.cpp stands for characters.cpp in a
/// build without ICU; there they are known for ASCII, and other characters are a UsageError.

/// "ICU 72.1", or "none" and what that costs.
std::string characters_library();

/// Whether it is a letter in upper, lower or title case.
bool is_cased(char32_t c);
/// Whether Python's repr() shows the character as it is.
bool is_printable(char32_t c);
char32_t title_case_of(char32_t c);

/// A text in UTF-8 in capital or in small letters, whatever the language.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);

}  // namespace axonn
