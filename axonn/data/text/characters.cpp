#include "axonn/data/text/characters.h"

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

std::string characters_library() { return "ICU " U_ICU_VERSION; }

bool is_cased(char32_t c) {
  const UChar32 u = icu_character(c);
  return u_isUUppercase(u) || u_isULowercase(u) || u_istitle(u);
}

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
