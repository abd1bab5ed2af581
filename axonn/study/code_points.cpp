#include "axonn/study/code_points.h"

#include <algorithm>
#include <array>
#include <utility>

namespace axonn {

namespace {

using Ranges = std::array<std::pair<char32_t, char32_t>, 9>;

// The large blocks of wide characters in Unicode's EastAsianWidth.txt.
constexpr Ranges kTwoColumns = {{{0x1100, 0x115f},
                                 {0x2e80, 0xa4cf},
                                 {0xac00, 0xd7a3},
                                 {0xf900, 0xfaff},
                                 {0xfe30, 0xfe6f},
                                 {0xff00, 0xff60},
                                 {0xffe0, 0xffe6},
                                 {0x1f300, 0x1faff},
                                 {0x20000, 0x3fffd}}};

bool among(const Ranges& ranges, char32_t c) {
  return std::ranges::any_of(ranges,
                             [&](auto range) { return range.first <= c && c <= range.second; });
}

int columns_taken(char32_t c) {
  const bool combining =
      (c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f) || (c >= 0xfe00 && c <= 0xfe0f);
  if (combining) return 0;
  return among(kTwoColumns, c) ? 2 : 1;
}

}  // namespace

int columns_of(std::u32string_view points) {
  int columns = 0;
  for (const char32_t c : points) columns += columns_taken(c);
  return columns;
}

std::string shortened(std::string_view text, int columns, Keep keep, std::string_view sign) {
  std::u32string points = code_points(text);
  if (columns_of(points) <= columns) return to_utf8(points);
  if (keep == Keep::end) std::ranges::reverse(points);
  int room = columns - static_cast<int>(sign.size());
  std::size_t kept = 0;
  while (kept < points.size() && columns_taken(points[kept]) <= room)
    room -= columns_taken(points[kept++]);
  points.resize(kept);
  if (keep == Keep::end) {
    std::ranges::reverse(points);
    return std::string(sign) + to_utf8(points);
  }
  return to_utf8(points) + std::string(sign);
}

}  // namespace axonn
