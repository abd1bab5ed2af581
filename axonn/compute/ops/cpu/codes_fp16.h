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

inline void four_f16(const std::uint8_t* first, int apart, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = from_f16(first + i * apart);
}

}  // namespace axonn::cpu::detail
