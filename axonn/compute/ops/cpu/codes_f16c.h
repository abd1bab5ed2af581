#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

// What codes_avx2.h and codes_avx512.h share, by F16C.

namespace axonn::cpu::detail {

inline float from_f16(const std::uint8_t* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return _cvtsh_ss(bits);
}

}  // namespace axonn::cpu::detail
