#include "axonn/text/characters.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

namespace axonn {

namespace {

icu::UnicodeString to_icu(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
}

UChar32 icu_character(char32_t c) { return static_cast<UChar32>(c); }

}  // namespace

NumberKind number_kind(char32_t c) {
  switch (u_getIntPropertyValue(icu_character(c), UCHAR_NUMERIC_TYPE)) {
    case U_NT_NONE:
      return NumberKind::none;
    case U_NT_DECIMAL:
      return NumberKind::decimal;
    case U_NT_DIGIT:
      return NumberKind::digit;
    default:
      return NumberKind::other;
  }
}

bool is_letter(char32_t c) { return u_isalpha(icu_character(c)) != 0; }
bool is_upper_case(char32_t c) { return u_isUUppercase(icu_character(c)) != 0; }
bool is_lower_case(char32_t c) { return u_isULowercase(icu_character(c)) != 0; }
bool is_title_case(char32_t c) { return u_istitle(icu_character(c)) != 0; }

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (u_charType(icu_character(c))) {
    case U_UNASSIGNED:
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
    case U_SPACE_SEPARATOR:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
      return false;
    default:
      return true;
  }
}

char32_t title_case_of(char32_t c) { return static_cast<char32_t>(u_totitle(icu_character(c))); }

std::string upper_case(std::string_view text) {
  std::string out;
  return to_icu(text).toUpper(icu::Locale::getRoot()).toUTF8String(out);
}

std::string lower_case(std::string_view text) {
  std::string out;
  return to_icu(text).toLower(icu::Locale::getRoot()).toUTF8String(out);
}

}  // namespace axonn
