// Stands for characters.cpp in a build without ICU.
#include "axonn/data/text/characters.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

char32_t ascii(char32_t c) {
  if (c < 0x80) return c;
  refuse(
      "a chat template asks for properties of characters beyond ASCII, which needs ICU, and this "
      "build has none: install libicu-dev and configure with -DAXONN_ICU=ON");
}

std::string each_of(std::string_view text, char32_t (*change)(char32_t)) {
  std::string out;
  for (const char c : text) out += static_cast<char>(change(static_cast<unsigned char>(c)));
  return out;
}

bool is_lower_case(char32_t c) { return ascii(c) >= 'a' && c <= 'z'; }
bool is_upper_case(char32_t c) { return ascii(c) >= 'A' && c <= 'Z'; }

}  // namespace

std::string characters_library() {
  return "none: chat templates that change the case of text beyond ASCII are refused";
}

bool is_cased(char32_t c) { return is_lower_case(c) || is_upper_case(c); }
bool is_printable(char32_t c) { return ascii(c) >= 0x20 && c < 0x7f; }
char32_t title_case_of(char32_t c) { return is_lower_case(c) ? c - 'a' + 'A' : c; }

std::string upper_case(std::string_view text) { return each_of(text, title_case_of); }
std::string lower_case(std::string_view text) {
  return each_of(text, [](char32_t c) -> char32_t { return is_upper_case(c) ? c - 'A' + 'a' : c; });
}

}  // namespace axonn
