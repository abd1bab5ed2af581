#include "axonn/data/text/unicode/properties.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "axonn/data/text/unicode/tables.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr char32_t kLastCharacter = 0x10ffff;

void extend_set(CharacterSet& set, CharacterRange range) {
  if (!set.empty() && set.back().last + 1 == range.first)
    set.back().last = range.last;
  else
    set.push_back(range);
}

/// A name as names are compared.
std::string plain_name(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    letters += lower_ascii(c);
  }
  return letters;
}

/// Of a category, as in "Lu", or of all that begin with a letter.
CharacterSet of_category(const std::string& name) {
  CharacterSet set;
  for (std::string_view rest = kUnicodeClasses; !rest.empty();) {
    const char32_t first = take_hexadecimal(rest);
    rest.remove_prefix(1);
    const bool wanted = plain_name(rest.substr(0, 2)).starts_with(name);
    rest.remove_prefix(2);
    std::string_view next = rest;
    if (wanted)
      extend_set(set, {first, next.empty() ? kLastCharacter : take_hexadecimal(next) - 1});
  }
  return set;
}

CharacterSet of_script(const std::string& name) {
  CharacterSet set;
  for (std::string_view rest = kUnicodeScripts; !rest.empty();) {
    const std::size_t name_end = rest.find(' ');
    const bool wanted = plain_name(rest.substr(0, name_end)) == name;
    rest.remove_prefix(name_end + 1);
    std::string_view ranges = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(ranges.size() + 1, rest.size()));
    if (!wanted) continue;
    while (!ranges.empty()) {
      CharacterRange range{take_hexadecimal(ranges), 0};
      range.last = range.first;
      if (ranges.starts_with('-')) {
        ranges.remove_prefix(1);
        range.last = take_hexadecimal(ranges);
      }
      if (!ranges.empty()) ranges.remove_prefix(1);
      extend_set(set, range);
    }
  }
  return set;
}

}  // namespace

char32_t take_hexadecimal(std::string_view& text) {
  std::uint32_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number, 16).ptr;
  text.remove_prefix(end - text.data());
  return number;
}

std::optional<CharacterSet> characters_with(std::string_view property) {
  const std::string name = plain_name(property);
  if (name.empty()) return std::nullopt;
  if (name == "any") return CharacterSet{{0, kLastCharacter}};
  CharacterSet set = name.size() <= 2 ? of_category(name) : of_script(name);
  if (set.empty()) return std::nullopt;
  return set;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  static const std::vector<CharacterSet> sets = [] {
    // Joiners, and letters in circles and squares, which are symbols.
    std::vector<CharacterSet> all{{{0x200c, 0x200d},
                                   {0x24b6, 0x24e9},
                                   {0x1f130, 0x1f149},
                                   {0x1f150, 0x1f169},
                                   {0x1f170, 0x1f189}}};
    for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) all.push_back(*characters_with(name));
    return all;
  }();
  return std::ranges::any_of(sets, [&](const CharacterSet& set) { return holds(set, c); });
}

std::string_view without_space(std::string_view text, Strip which) {
  while (which != Strip::right && !text.empty() && is_space(code_point(text)))
    text.remove_prefix(utf8_front(text).bytes);
  while (which != Strip::left && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xc0) == 0x80) --at;
    if (!is_space(code_point(text.substr(at)))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

bool holds(const CharacterSet& set, char32_t c) {
  const auto after = std::ranges::upper_bound(set, c, {}, &CharacterRange::first);
  return after != set.begin() && c <= std::prev(after)->last;
}

CharacterSet difference(const CharacterSet& set, const CharacterSet& other) {
  CharacterSet rest;
  auto taken = other.begin();
  for (CharacterRange range : set) {
    while (taken != other.end() && taken->last < range.first) ++taken;
    for (auto at = taken; at != other.end() && at->first <= range.last; ++at) {
      if (at->first > range.first) rest.push_back({range.first, at->first - 1});
      range.first = at->last + 1;
    }
    if (range.first <= range.last) rest.push_back(range);
  }
  return rest;
}

CharacterSet all_but(const CharacterSet& set) {
  return difference({{0, 0xd7ff}, {0xe000, kLastCharacter}}, set);
}

}  // namespace axonn
