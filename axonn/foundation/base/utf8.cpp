#include "axonn/foundation/base/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace axonn {

namespace {

struct Form {
  std::size_t bytes;        // 0: not the first byte of a character
  unsigned char low, high;  // range of the second byte
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xc2) return {0, 0, 0};
  if (first < 0xe0) return {2, 0x80, 0xbf};
  if (first == 0xe0) return {3, 0xa0, 0xbf};
  if (first == 0xed) return {3, 0x80, 0x9f};
  if (first < 0xf0) return {3, 0x80, 0xbf};
  if (first == 0xf0) return {4, 0x90, 0xbf};
  if (first < 0xf4) return {4, 0x80, 0xbf};
  if (first == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

struct Width {
  char32_t first, last;
  int columns;
};

// Combining and other invisible marks, and the large blocks of wide characters in Unicode's
// EastAsianWidth.txt.
constexpr std::array kWidths = {
    Width{0x300, 0x36f, 0},   Width{0x200b, 0x200f, 0},   Width{0xfe00, 0xfe0f, 0},
    Width{0x1100, 0x115f, 2}, Width{0x2e80, 0xa4cf, 2},   Width{0xac00, 0xd7a3, 2},
    Width{0xf900, 0xfaff, 2}, Width{0xfe30, 0xfe6f, 2},   Width{0xff00, 0xff60, 2},
    Width{0xffe0, 0xffe6, 2}, Width{0x1f300, 0x1faff, 2}, Width{0x20000, 0x3fffd, 2}};

/// The columns of the character at the front of a text; 1 if it is not well-formed.
int columns_of(std::string_view text) {
  const char32_t c = code_point(text);
  const auto width = std::ranges::find_if(
      kWidths, [&](const Width& each) { return each.first <= c && c <= each.last; });
  return width == kWidths.end() ? 1 : width->columns;
}

/// The bytes of the longest prefix that takes at most `columns` columns.
std::size_t prefix_within(std::string_view text, int columns) {
  std::size_t at = 0;
  while (at < text.size()) {
    columns -= columns_of(text.substr(at));
    if (columns < 0) break;
    at += utf8_front(text.substr(at)).bytes;
  }
  return at;
}

/// Appends the first character of a text; U+FFFD for an invalid byte, \xNN for a control character.
void append_visible(std::string& out, std::string_view text) {
  const Utf8Front front = utf8_front(text);
  const char32_t point = code_point(text);
  if (front.kind != Utf8Front::Kind::complete)
    out += "\xef\xbf\xbd";
  else if (point < 0x20 || (point >= 0x7f && point < 0xa0))
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(point));
  else
    out += text.substr(0, front.bytes);
}

}  // namespace

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_ascii(c);
  return lower;
}

Utf8Front utf8_front(std::string_view text) {
  using Kind = Utf8Front::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Form form = form_of(byte(0));
  if (form.bytes == 0) return {Kind::invalid, 1};
  for (std::size_t i = 1; i < form.bytes; ++i) {
    if (i == text.size()) return {Kind::incomplete, i};
    const unsigned char low = i == 1 ? form.low : 0x80, high = i == 1 ? form.high : 0xbf;
    if (byte(i) < low || byte(i) > high) return {Kind::invalid, 1};
  }
  return {Kind::complete, form.bytes};
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

std::int64_t code_points(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ULL) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Front front = utf8_front(text.substr(at));
    if (front.kind != Utf8Front::Kind::complete) break;
    at += front.bytes;
  }
  return at;
}

std::size_t incomplete_utf8_suffix(std::string_view text) {
  for (std::size_t bytes = std::min<std::size_t>(3, text.size()); bytes > 0; --bytes) {
    const Utf8Front front = utf8_front(text.substr(text.size() - bytes));
    if (front.kind == Utf8Front::Kind::incomplete && front.bytes == bytes) return bytes;
  }
  return 0;
}

char32_t code_point(std::string_view text) {
  const Utf8Front front = utf8_front(text);
  if (front.kind != Utf8Front::Kind::complete) return 0xfffd;
  constexpr std::array<unsigned char, 5> kBits = {0, 0x7f, 0x1f, 0x0f, 0x07};  // of byte 1
  char32_t point = static_cast<unsigned char>(text[0]) & kBits[front.bytes];
  for (std::size_t i = 1; i < front.bytes; ++i)
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  return point;
}

std::string printable(std::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(utf8_front(text).bytes))
    if (text[0] == '\n')
      out += "\\n";
    else if (text[0] == '\t')
      out += "\\t";
    else
      append_visible(out, text);
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t end; (end = text.find('\\')) != text.npos; text.remove_prefix(end + 1))
    out += printable(text.substr(0, end)) + R"(\\)";
  return out + printable(text);
}

std::string harmless(std::string_view text) {
  constexpr std::string_view kKept = "\n\t\r", kClearsLine = "\x1b[K";
  std::string out;
  for (; !text.empty(); text.remove_prefix(utf8_front(text).bytes))
    if (kKept.find(text[0]) != kKept.npos || text.starts_with(kClearsLine))
      out += text[0];
    else
      append_visible(out, text);
  return out;
}

int utf8_columns(std::string_view text) {
  int columns = 0;
  for (; !text.empty(); text.remove_prefix(utf8_front(text).bytes)) columns += columns_of(text);
  return columns;
}

std::string shortened(std::string_view text, int columns) {
  constexpr std::string_view kSign = "...";
  if (prefix_within(text, columns) == text.size()) return std::string(text);
  const int room = columns - static_cast<int>(kSign.size());
  return std::string(text.substr(0, prefix_within(text, room))).append(kSign);
}

}  // namespace axonn
