#pragma once

#include <cstdint>
#include <string_view>

namespace axonn::parquet {

/// Thrown for bytes that are not what they should be; who knows the file makes it an error.
struct Damage {
  const char* what;
};

/// Takes the first bytes of `rest`. Throws Damage if it has fewer.
inline std::string_view take(std::string_view& rest, std::uint64_t bytes) {
  if (bytes > rest.size()) throw Damage{"bytes that end too early"};
  const std::string_view taken = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  return taken;
}

/// Takes a number in groups of seven bits, the lowest first, of which all but the last have the
/// eighth bit set (LEB128). Throws Damage for more than 64 bits.
inline std::uint64_t take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto next = static_cast<unsigned char>(take(rest, 1)[0]);
    value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
    if (!(next & 0x80)) return value;
  }
  throw Damage{"a number of more than 64 bits"};
}

/// Takes such a number whose lowest bit is the sign (zigzag).
inline std::int64_t take_signed(std::string_view& rest) {
  const std::uint64_t zigzag = take_varint(rest);
  return static_cast<std::int64_t>(zigzag >> 1) ^ -static_cast<std::int64_t>(zigzag & 1);
}

}  // namespace axonn::parquet
