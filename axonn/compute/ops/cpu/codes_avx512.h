#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "axonn/compute/ops/cpu/codes_f16c.h"
#include "axonn/compute/ops/cpu/floats.h"

// Registers of floats from codes by AVX-512; codes_portable.h describes the functions. g++ 12 warns
// of functions without a mask.

namespace axonn::cpu {

namespace detail {

constexpr __mmask16 kAll16 = 0xffff;

inline __m512 from_words(__m512i words) { return _mm512_maskz_cvtepi32_ps(kAll16, words); }

[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return from_words(_mm512_maskz_cvtepi8_epi32(kAll16, bytes));
}

[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, bool higher, const std::array<float, 16>& values) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  __m512i words = _mm512_maskz_cvtepu8_epi32(kAll16, bytes);
  if (higher) words = _mm512_maskz_srli_epi32(kAll16, words, 4);
  return _mm512_maskz_permutexvar_ps(kAll16, words, _mm512_loadu_ps(values.data()));
}

[[gnu::always_inline]] inline Registers::Register plus_if_set(const Registers::Register& x,
                                                              const std::uint8_t* bits, int,
                                                              float number) {
  std::uint16_t set;
  std::memcpy(&set, bits, sizeof set);
  return _mm512_mask_add_ps(x, set, x, _mm512_set1_ps(number));
}

}  // namespace detail

}  // namespace axonn::cpu
