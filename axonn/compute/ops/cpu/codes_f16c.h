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

inline void four_f16(const std::uint8_t* first, int apart, float* out) {
  std::uint64_t all = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint16_t one;
    std::memcpy(&one, first + i * apart, sizeof one);
    all |= static_cast<std::uint64_t>(one) << 16 * i;
  }
  _mm_storeu_ps(out, _mm_cvtph_ps(_mm_cvtsi64_si128(static_cast<long long>(all))));
}

}  // namespace axonn::cpu::detail
