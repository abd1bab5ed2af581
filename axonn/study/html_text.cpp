#include "axonn/study/html_text.h"

#include "axonn/study/code_points.h"

namespace axonn {

namespace {

/// The character itself, or a printable replacement if HTML cannot show it.
char32_t shown(char32_t c) {
  if (c == '\n' || c == '\t') return c;
  if (c < 0x20) return 0x2400 + c;
  if (c == 0x7f) return 0x2421;
  const bool control = c < 0xa0 && c > 0x7f,
             no_character = (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef);
  return control || no_character ? 0xfffd : c;
}

}  // namespace

std::string escaped(std::u32string_view points) {
  std::string text;
  for (const char32_t c : points) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '"':
        text += "&quot;";
        break;
      case '\'':
        text += "&#39;";
        break;
      default: {
        const char32_t one = shown(c);
        text += to_utf8({&one, 1});
      }
    }
  }
  return text;
}

std::string escaped(std::string_view text) { return escaped(code_points(text)); }

}  // namespace axonn
