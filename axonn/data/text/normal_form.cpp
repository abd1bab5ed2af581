#include "axonn/data/text/normal_form.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "axonn/data/text/unicode/properties.h"
#include "axonn/data/text/unicode/tables.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

// Hangul syllables are composed by arithmetic. Source: the Unicode Standard, section 3.12.
constexpr char32_t kSyllable = 0xac00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11a7;
constexpr char32_t kVowels = 21, kTrails = 28, kSyllables = 11172, kLeads = 19;

// No character beyond this one is in the tables.
constexpr char32_t kEnd = 0x30000;

using CharacterMap = std::unordered_map<char32_t, std::u32string>;

/// Reads a table "c=a+b+c ...".
void read_character_map(std::string_view table, CharacterMap& map) {
  while (!table.empty()) {
    std::u32string& to = map[take_hexadecimal(table)];
    do {
      table.remove_prefix(1);
      to += take_hexadecimal(table);
    } while (table.starts_with('+'));
    table.remove_prefix(table.empty() ? 0 : 1);
  }
}

/// The tables of composition, read for searching.
class Compositions {
 public:
  Compositions() : unstable_(kEnd), joins_(kEnd), special_(kEnd) {
    for (std::string_view rest = kCombiningClasses; !rest.empty(); skip(rest)) {
      char32_t c = take_hexadecimal(rest);
      rest.remove_prefix(1);
      const char32_t last = take_hexadecimal(rest);
      rest.remove_prefix(1);
      const char32_t kind = take_hexadecimal(rest);
      for (; c <= last; ++c) {
        classes_[c] = static_cast<std::uint8_t>(kind);
        unstable_[c] = joins_[c] = true;
      }
    }
    read_decompositions();
    read_character_map(kCompatible, compatible_);
    for (const auto& [c, parts] : compatible_) special_[c] = true;
    for (char32_t c = kVowel; c < kVowel + kVowels; ++c) unstable_[c] = joins_[c] = true;
    for (char32_t c = kTrail + 1; c < kTrail + kTrails; ++c) unstable_[c] = joins_[c] = true;
    for (const auto& [c, parts] : parts_)
      if (joins_[first_of(c)]) joins_[c] = true;
    for (const auto& [c, parts] : compatible_)
      if (joins_[first_of(parts[0])]) joins_[c] = true;
  }

  /// Whether the character may change, alone or after certain others.
  bool unstable(char32_t c, NormalForm form) const {
    if (c >= kEnd) return false;
    if (has_special(form) && special_[c]) return true;
    if (is_composed(form)) return unstable_[c];
    return class_of(c) > 0 || parts_.contains(c) || is_syllable(c);
  }
  static bool is_composed(NormalForm form) {
    return form == NormalForm::nfc || form == NormalForm::nfkc;
  }
  static bool has_special(NormalForm form) {
    return form == NormalForm::nfkc || form == NormalForm::nfkd;
  }
  /// Whether the character may change together with one before it.
  bool joins(char32_t c) const { return c < kEnd && joins_[c]; }

  std::uint8_t class_of(char32_t c) const {
    const auto found = classes_.find(c);
    return found == classes_.end() ? 0 : found->second;
  }

  void decompose(char32_t c, NormalForm form, std::u32string& out) const {
    if (has_special(form) && c < kEnd && special_[c]) {
      for (const char32_t part : compatible_.at(c)) decompose(part, form, out);
    } else if (is_syllable(c)) {
      const char32_t index = c - kSyllable, trail = index % kTrails;
      out += kLead + index / (kVowels * kTrails);
      out += kVowel + index / kTrails % kVowels;
      if (trail != 0) out += kTrail + trail;
    } else if (const auto found = parts_.find(c); found != parts_.end()) {
      decompose(found->second.first, form, out);
      if (found->second.second != 0) decompose(found->second.second, form, out);
    } else {
      out += c;
    }
  }

  /// 0: these do not compose.
  char32_t composed(char32_t first, char32_t second) const {
    if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels)
      return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
    if (first >= kSyllable && first < kSyllable + kSyllables &&
        (first - kSyllable) % kTrails == 0 && second > kTrail && second < kTrail + kTrails)
      return first + (second - kTrail);
    const auto found = whole_.find(std::uint64_t{first} << 32 | second);
    return found == whole_.end() ? 0 : found->second;
  }

 private:
  struct Parts {
    char32_t first, second;  // second is 0 if there is none
  };

  static bool is_syllable(char32_t c) { return c >= kSyllable && c < kSyllable + kSyllables; }
  static void skip(std::string_view& rest) { rest.remove_prefix(rest.empty() ? 0 : 1); }

  void read_decompositions() {
    for (std::string_view rest = kDecompositions; !rest.empty(); skip(rest)) {
      const char32_t c = take_hexadecimal(rest);
      rest.remove_prefix(1);
      Parts parts{take_hexadecimal(rest), 0};
      if (rest.starts_with('+')) {
        rest.remove_prefix(1);
        parts.second = take_hexadecimal(rest);
      }
      parts_[c] = parts;
      if (rest.starts_with('!')) {
        rest.remove_prefix(1);
        unstable_[c] = true;
      } else {
        whole_[std::uint64_t{parts.first} << 32 | parts.second] = c;
        unstable_[parts.second] = joins_[parts.second] = true;
      }
    }
  }

  char32_t first_of(char32_t c) const {
    for (auto found = parts_.find(c); found != parts_.end(); found = parts_.find(c))
      c = found->second.first;
    return c;
  }

  std::vector<bool> unstable_, joins_, special_;
  std::unordered_map<char32_t, std::uint8_t> classes_;
  std::unordered_map<char32_t, Parts> parts_;
  std::unordered_map<std::uint64_t, char32_t> whole_;
  CharacterMap compatible_;
};

const Compositions& compositions() {
  static const Compositions tables;
  return tables;
}

/// Appends a form of a text whose neighbours do not matter.
void append_form(std::string_view text, NormalForm form, std::string& out) {
  const Compositions& tables = compositions();
  std::u32string parts;
  for (; !text.empty(); text.remove_prefix(utf8_front(text).bytes))
    tables.decompose(code_point(text), form, parts);
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto starts = [&](char32_t c) { return tables.class_of(c) == 0; };
    begin = std::find_if_not(begin, parts.end(), starts);
    const auto end = std::find_if(begin, parts.end(), starts);
    std::stable_sort(begin, end, [&](char32_t a, char32_t b) {
      return tables.class_of(a) < tables.class_of(b);
    });
    begin = end;
  }
  if (!Compositions::is_composed(form)) {
    for (const char32_t c : parts) append_utf8(c, out);
    return;
  }
  std::u32string composed;
  std::size_t start = composed.npos;  // the last character of class 0
  int last_class = -1;                // of the character at the end; -1: that is the one at start
  for (const char32_t c : parts) {
    const int kind = tables.class_of(c);
    if (start != composed.npos && last_class < kind) {
      if (const char32_t whole = tables.composed(composed[start], c); whole != 0) {
        composed[start] = whole;
        continue;
      }
    }
    last_class = kind == 0 ? -1 : kind;
    if (kind == 0) start = composed.size();
    composed += c;
  }
  for (const char32_t c : composed) append_utf8(c, out);
}

}  // namespace

void append_normal(std::string_view valid, NormalForm form, std::string& out) {
  const Compositions& tables = compositions();
  std::size_t apart = 0, at = 0;  // the last character at or before `at` that begins apart
  while (at < valid.size()) {
    const std::string_view rest = valid.substr(at);
    const char32_t c = code_point(rest);
    if (!tables.joins(c)) apart = at;
    at += utf8_front(rest).bytes;
    if (!tables.unstable(c, form)) continue;
    while (!begins_apart(valid.substr(at))) at += utf8_front(valid.substr(at)).bytes;
    out += valid.substr(0, apart);
    append_form(valid.substr(apart, at - apart), form, out);
    valid.remove_prefix(at);
    apart = at = 0;
  }
  out += valid;
}

bool begins_apart(std::string_view text) {
  return text.empty() || !compositions().joins(code_point(text));
}

bool stays_normal(std::string_view character, NormalForm form) {
  std::string out;
  append_form(character, form, out);
  return out == character;
}

void append_lower_case(std::string_view valid, std::string& out) {
  static const CharacterMap lower = [] {
    CharacterMap map;
    read_character_map(kLowerCase, map);
    return map;
  }();
  for (; !valid.empty(); valid.remove_prefix(utf8_front(valid).bytes)) {
    const char32_t c = code_point(valid);
    if (const auto found = lower.find(c); found != lower.end())
      for (const char32_t small : found->second) append_utf8(small, out);
    else
      out += valid.substr(0, utf8_front(valid).bytes);
  }
}

void append_without_marks(std::string_view valid, std::string& out) {
  static const CharacterSet marks = [] {
    CharacterSet set;
    for (std::string_view rest = kMarks; !rest.empty();) {
      CharacterRange range{take_hexadecimal(rest), 0};
      rest.remove_prefix(1);
      range.last = take_hexadecimal(rest);
      rest.remove_prefix(rest.empty() ? 0 : 1);
      set.push_back(range);
    }
    return set;
  }();
  for (; !valid.empty(); valid.remove_prefix(utf8_front(valid).bytes))
    if (!holds(marks, code_point(valid))) out += valid.substr(0, utf8_front(valid).bytes);
}

}  // namespace axonn
