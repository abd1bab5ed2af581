#include "axonn/data/text/jinja/jinja_text.h"

#include <algorithm>

#include "axonn/data/text/characters.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

void Text::append(std::string_view bytes, Origin origin) {
  const bool kept = !bytes.empty() || origin.source >= 0;
  if (!kept) return;
  if (cost() + bytes.size() > kMostCost)
    refuse("the template makes a text of more than ", kMostCost >> 20U, " MiB");
  if (bytes_.empty() && runs_.empty() && first_.source < 0) {
    bytes_ = bytes;
    first_ = origin;
    return;
  }
  const Origin last = runs_.empty() ? first_ : runs_.back().origin;
  if (last != origin && runs_.empty()) runs_.push_back({bytes_.size(), first_});
  bytes_ += bytes;
  if (last != origin)
    runs_.push_back({bytes_.size(), origin});
  else if (!runs_.empty())
    runs_.back().end = bytes_.size();
}

void Text::append(const Text& other) {
  if (&other == this) return append(Text(other));
  other.for_pieces([&](std::string_view bytes, Origin origin) { append(bytes, origin); });
}

void Text::cut(std::size_t size) {
  if (size < bytes_.size()) *this = slice(0, size);
}

void Text::mark() {
  first_.marked = true;
  for (Run& run : runs_) run.origin.marked = true;
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  end = std::min(end, bytes_.size());
  begin = std::min(begin, end);
  Text out;
  std::size_t at = 0;
  for_pieces([&](std::string_view bytes, Origin origin) {
    const std::size_t from = std::max(at, begin), to = std::min(at + bytes.size(), end);
    const bool here = bytes.empty() && at >= begin && at <= end;
    // A piece of which nothing is left still marks the position of its message.
    if (from < to || here || (begin == end && from == to))
      out.append(from < to ? bytes.substr(from - at, to - from) : std::string_view(), origin);
    at += bytes.size();
  });
  return out;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, utf8_front(text).bytes);
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if ((text[at] & 0xc0) != 0x80 && index-- == 0) break;
  return at;
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

/// A character in title case: that of several letters has a capital first one ("Ss").
static std::string title_of(std::string_view character) {
  const char32_t c = code_point(character);
  std::string title;
  append_utf8(title_case_of(c), title);
  std::string upper = upper_case(character);
  if (title != character || upper == character || code_points(upper) == 1) return title;
  constexpr std::string_view kIota = "\u0399", kIotaBelow = "\u0345";
  if (c >= 0x1f00 && c < 0x2000 && upper.ends_with(kIota))
    upper.replace(upper.size() - kIota.size(), kIota.size(), kIotaBelow);
  title.clear();
  bool begun = false;
  for (std::string_view rest = upper; !rest.empty();) {
    const std::string_view first = first_character(rest);
    title += begun && first != kIotaBelow ? lower_case(first) : std::string(first);
    begun = begun || is_cased(code_point(first));
    rest.remove_prefix(first.size());
  }
  return title;
}

Text title_case(const Text& text, bool once) {
  bool inner = false;  // after a letter of the same word
  return text.mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      const char32_t c = code_point(first);
      out += inner ? lower_case(first) : title_of(first);
      inner = once || is_cased(c);
    }
    return out;
  });
}

std::string_view strip(std::string_view text, Strip which, const std::string* characters) {
  const auto strips = [&](std::string_view c) {
    return characters ? characters->find(c) != characters->npos : is_white_space(code_point(c));
  };
  while (which != Strip::right && !text.empty()) {
    const std::string_view first = first_character(text);
    if (!strips(first)) break;
    text.remove_prefix(first.size());
  }
  while (which != Strip::left && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xc0) == 0x80) --at;
    if (!strips(text.substr(at))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view c = first_character(text.substr(at));
    const char32_t u = code_point(c);
    const bool ends =
        (u >= 10 && u <= 13) || (u >= 0x1c && u <= 0x1e) || u == 0x85 || u == 0x2028 || u == 0x2029;
    const std::size_t bytes = text.substr(at).starts_with("\r\n") ? 2 : c.size();
    if (ends) {
      lines.push_back(text.substr(begin, (keep_ends ? at + bytes : at) - begin));
      begin = at + bytes;
    }
    at += bytes;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace axonn::jinja
