#include "axonn/data/corpus/files/json_text.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace axonn {

void append_json_text(std::string_view text, std::string& to) {
  to += '"';
  for (;;) {
    const auto special = std::ranges::find_if(
        text, [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; });
    const auto plain = static_cast<std::size_t>(special - text.begin());
    to += text.substr(0, plain);
    if (plain == text.size()) break;
    const char c = text[plain];
    if (c == '"' || c == '\\')
      (to += '\\') += c;
    else if (c == '\n')
      to += "\\n";
    else
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", static_cast<unsigned>(c));
    text.remove_prefix(plain + 1);
  }
  to += '"';
}

}  // namespace axonn
