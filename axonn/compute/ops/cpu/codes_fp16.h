#pragma once

#include <cstdint>
#include <cstring>

// What codes_neon.h and codes_sve.h share, by the type of f16 that 64-bit ARM has.

namespace axonn::cpu::detail {

inline float from_f16(const std::uint8_t* bytes) {
  __fp16 half;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}

}  // namespace axonn::cpu::detail
