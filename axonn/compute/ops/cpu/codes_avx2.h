#pragma once

#include <array>
#include <cstdint>

#include <immintrin.h>

#include "axonn/compute/ops/cpu/codes_f16c.h"
#include "axonn/compute/ops/cpu/floats.h"

// Registers of floats from codes by AVX2 and F16C; codes_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, bool higher, const std::array<float, 16>& values) {
  __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  if (higher) words = _mm256_srli_epi32(words, 4);
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(values.data()), words),
                          _mm256_permutevar8x32_ps(_mm256_loadu_ps(values.data() + 8), words),
                          _mm256_castsi256_ps(_mm256_slli_epi32(words, 28)));
}

[[gnu::always_inline]] inline Registers::Register plus_if_set(const Registers::Register& x,
                                                              const std::uint8_t* bits, int,
                                                              float number) {
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                set = _mm256_and_si256(_mm256_set1_epi32(*bits), each);
  return x +
         _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, each)), _mm256_set1_ps(number));
}

}  // namespace detail

}  // namespace axonn::cpu
