#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace axonn {

/// SHA-256 of bytes that come piece by piece. Nobody can find two inputs with the same hash, so it
/// also detects deliberate changes.
/// Source: FIPS 180-4, "Secure Hash Standard".
class Sha256 {
 public:
  void append(std::span<const std::byte> bytes);
  /// 64 lower-case hex digits. Call it once, at the end.
  std::string finish();

 private:
  void add_block(const std::byte* block);  // (64)

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};  // bytes that do not fill a block yet
  std::uint64_t bytes_ = 0;
};

}  // namespace axonn
