#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// "Unicode 16.0, NFC of 9.0": the versions of this program's own tables, those of the tokenizers
/// library. Tokens of equal text are equal wherever this is equal.
inline constexpr std::string_view kUnicodeVersion = "Unicode 16.0, NFC of 9.0";

/// Characters that follow each other; both ends are included.
struct CharacterRange {
  char32_t first, last;
  bool operator==(const CharacterRange&) const = default;
};

/// Ascending, with a gap between neighbours.
using CharacterSet = std::vector<CharacterRange>;

/// The characters of a general category ("L", "Lu"), of a script ("Han") or of "Any"; case, spaces,
/// - and _ in the name do not matter. Empty if the name is none of these.
std::optional<CharacterSet> characters_with(std::string_view property);

bool holds(const CharacterSet& set, char32_t c);

/// Unicode's White_Space.
bool is_space(char32_t c);
/// A character of words: a letter, mark, digit, connector or joiner. Source: Unicode Technical
/// Standard 18, \w.
bool is_word_character(char32_t c);

/// Which end of a text to strip.
enum class Strip { left, right, both };
/// The text without the white space at its ends.
std::string_view without_space(std::string_view text, Strip which);

/// The characters that are in neither; surrogates (U+D800 to U+DFFF) are left out.
CharacterSet all_but(const CharacterSet& set);

/// Those in `set` that are not in `other`.
CharacterSet difference(const CharacterSet& set, const CharacterSet& other);

}  // namespace axonn
