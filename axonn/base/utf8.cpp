#include "axonn/base/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

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

}  // namespace

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

std::u32string code_points(std::string_view text) {
  std::u32string points;
  while (!text.empty()) {
    const Utf8Front front = utf8_front(text);
    if (front.kind == Utf8Front::Kind::complete) {
      constexpr std::array<unsigned char, 5> kBits = {0, 0x7f, 0x1f, 0x0f, 0x07};  // of byte 1
      char32_t point = static_cast<unsigned char>(text[0]) & kBits[front.bytes];
      for (std::size_t i = 1; i < front.bytes; ++i)
        point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
      points += point;
    } else {
      points.append(front.bytes, 0xfffd);
    }
    text.remove_prefix(front.bytes);
  }
  return points;
}

std::string to_utf8(std::u32string_view points) {
  std::string text;
  const auto byte = [](char32_t bits) {
    return static_cast<char>(static_cast<unsigned char>(bits));
  };
  for (const char32_t c : points) {
    if (c < 0x80) {
      text += byte(c);
      continue;
    }
    if (c < 0x800) {
      text += byte(0xc0 | c >> 6);
    } else {
      if (c < 0x10000) {
        text += byte(0xe0 | c >> 12);
      } else {
        text += byte(0xf0 | c >> 18);
        text += byte(0x80 | (c >> 12 & 0x3f));
      }
      text += byte(0x80 | (c >> 6 & 0x3f));
    }
    text += byte(0x80 | (c & 0x3f));
  }
  return text;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const Utf8Front front = utf8_front(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (front.kind != Utf8Front::Kind::complete) {
      out += "\xef\xbf\xbd";
    } else if (first == '\n') {
      out += "\\n";
    } else if (first == '\t') {
      out += "\\t";
    } else if (first < 0x20 || first == 0x7f) {
      out += {'\\', 'x', kHex[first >> 4], kHex[first & 15]};
    } else {
      out += text.substr(0, front.bytes);
    }
    text.remove_prefix(front.bytes);
  }
  return out;
}

}  // namespace axonn
