#include "axonn/text/jinja/jinja_text.h"

#include <algorithm>
#include <array>

#include "axonn/base/utf8.h"
#include "axonn/text/characters.h"

namespace axonn::jinja {

void Text::append(std::string_view bytes, Origin origin) {
  const bool kept = !bytes.empty() || origin.source >= 0;
  if (!kept) return;
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

Text Text::as_markup(bool yes) const {
  Text out = *this;
  out.is_markup_ = yes;
  return out;
}

Text Text::escaped() const {
  if (is_markup_) return *this;
  constexpr std::string_view kPlain = "&<>'\"";
  constexpr std::array<std::string_view, 5> kEscaped{"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  return as_markup().mapped([&](std::string_view piece) {
    std::string out;
    for (const char c : piece) {
      const std::size_t at = kPlain.find(c);
      if (at == kPlain.npos)
        out += c;
      else
        out += kEscaped[at];
    }
    return out;
  });
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  end = std::min(end, bytes_.size());
  begin = std::min(begin, end);
  Text out;
  out.is_markup_ = is_markup_;
  std::size_t at = 0;
  for_pieces([&](std::string_view bytes, Origin origin) {
    const std::size_t from = std::max(at, begin), to = std::min(at + bytes.size(), end);
    const bool here = bytes.empty() && at >= begin && at <= end;
    // A piece of which nothing is left still marks the place of its message.
    if (from < to || here || (begin == end && from == to))
      out.append(from < to ? bytes.substr(from - at, to - from) : std::string_view(), origin);
    at += bytes.size();
  });
  return out;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, utf8_front(text).bytes);
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if ((text[at] & 0xc0) != 0x80 && index-- == 0) break;
  return at;
}

void append_utf8(char32_t c, std::string& to) {
  const auto tail = [&](int shift) {
    to += static_cast<char>(0x80 | ((c >> static_cast<unsigned>(shift)) & 0x3f));
  };
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xc0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    to += static_cast<char>(0xe0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    to += static_cast<char>(0xf0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

namespace {

bool is_in_class(char32_t c, std::string_view predicate) {
  if (predicate == "isspace") return is_white_space(c);
  const bool letter = is_letter(c);
  if (predicate == "isalpha") return letter;
  const NumberKind number = number_kind(c);
  if (predicate == "isdecimal") return number == NumberKind::decimal;
  if (predicate == "isdigit") return number == NumberKind::decimal || number == NumberKind::digit;
  if (predicate == "isalnum") return letter || number != NumberKind::none;
  return number != NumberKind::none;  // isnumeric
}

bool is_cased(char32_t c) { return is_upper_case(c) || is_lower_case(c) || is_title_case(c); }

}  // namespace

Text title_case(const Text& text, bool once) {
  bool inner = false;  // after a letter of the same word
  return text.mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      const char32_t c = code_point(first);
      if (inner)
        out += lower_case(first);
      else
        append_utf8(title_case_of(c), out);
      inner = once || is_cased(c);
    }
    return out;
  });
}

bool has_only(std::string_view text, std::string_view predicate) {
  const bool upper = predicate == "isupper";
  if (upper || predicate == "islower") {
    bool some = false;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view first = first_character(rest);
      rest.remove_prefix(first.size());
      const char32_t c = code_point(first);
      if (is_title_case(c) || (upper ? is_lower_case(c) : is_upper_case(c))) return false;
      some = some || (upper ? is_upper_case(c) : is_lower_case(c));
    }
    return some;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view first = first_character(rest);
    rest.remove_prefix(first.size());
    if (!is_in_class(code_point(first), predicate)) return false;
  }
  return !text.empty();
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
