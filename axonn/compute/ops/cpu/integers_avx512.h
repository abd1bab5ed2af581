#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "axonn/compute/ops/cpu/architecture.h"
#include "axonn/compute/ops/cpu/codes_f16c.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/integers_x86.h"

// Products of bytes by AVX-512, with VNNI if the set has it; integers_avx2.h describes the
// functions. A register is the whole strip. g++ 12 warns of functions without a mask.

namespace axonn::cpu {

constexpr bool kHasIntegers = true;

/// With VNNI codes of 8 bits are made positive.
constexpr int kSignedOffset = kMultipliesBytes ? 128 : 0;
constexpr bool kAddsPairs = !kMultipliesBytes;

namespace detail {

constexpr __mmask64 kAll64 = ~__mmask64{0};
constexpr __mmask8 kAll8 = 0xff, kUpper8 = 0xf0;

[[gnu::always_inline]] inline Integers integers_at(const void* bytes) {
  return reinterpret_cast<Integers>(_mm512_loadu_si512(bytes));
}
[[gnu::always_inline]] inline Integers same_32(const std::uint8_t* bytes, int) {
  const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  return reinterpret_cast<Integers>(_mm512_maskz_broadcast_i64x4(kAll8, all));
}
[[gnu::always_inline]] inline Integers blocks_of_32(const std::uint8_t* first, int apart, int) {
  const __m256i other = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + apart));
  return reinterpret_cast<Integers>(
      _mm512_mask_broadcast_i64x4(reinterpret_cast<__m512i>(same_32(first, 0)), kUpper8, other));
}
[[gnu::always_inline]] inline Integers blocks_of_16(const std::uint8_t* first, int apart, int) {
  const __m128i one = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first)),
                other = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + apart));
  return reinterpret_cast<Integers>(
      _mm512_mask_broadcast_i64x2(_mm512_maskz_broadcast_i64x2(kAll8, one), kUpper8, other));
}
[[gnu::always_inline]] inline Integers plus_if_set(Integers codes, const std::uint8_t* first,
                                                   int apart, int, char number) {
  std::uint32_t low, high;
  std::memcpy(&low, first, sizeof low);
  std::memcpy(&high, first + apart, sizeof high);
  const auto x = reinterpret_cast<__m512i>(codes);
  return reinterpret_cast<Integers>(_mm512_mask_add_epi8(
      x, low | static_cast<std::uint64_t>(high) << 32, x, _mm512_set1_epi8(number)));
}
template <int each>
[[gnu::always_inline]] inline Register spread(const float* numbers, int) {
  const __m512i two = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  if constexpr (each == 32) {
    double both;
    std::memcpy(&both, numbers, sizeof both);
    return _mm512_maskz_permutevar_ps(0xffff, _mm512_castpd_ps(_mm512_set1_pd(both)), two);
  }
  const __m512 all = _mm512_maskz_broadcast_f32x4(0xffff, _mm_loadu_ps(numbers));
  return _mm512_maskz_permutevar_ps(0xffff, all, four);
}
[[gnu::always_inline]] inline Register as_floats(Integers words) {
  return _mm512_maskz_cvtepi32_ps(0xffff, reinterpret_cast<__m512i>(words));
}

[[gnu::always_inline]] inline Integers plus_pairs(Integers sums, Integers pairs) {
  const __m512i words = _mm512_madd_epi16(reinterpret_cast<__m512i>(pairs), _mm512_set1_epi16(1));
  return reinterpret_cast<Integers>(_mm512_add_epi32(reinterpret_cast<__m512i>(sums), words));
}
[[gnu::always_inline]] inline Integers plus_products(Integers sums, Integers codes,
                                                     Integers others) {
  if constexpr (kMultipliesBytes) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(others));
    return sums;
  }
  const __m512i pairs =
      _mm512_maddubs_epi16(reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512i>(others));
  return plus_pairs(sums, reinterpret_cast<Integers>(pairs));
}
[[gnu::always_inline]] inline Integers plus_signed_products(Integers sums, Integers codes,
                                                            Integers others) {
  if constexpr (kMultipliesBytes) return plus_products(sums, codes ^ 0x8080808080808080, others);
  const auto x = reinterpret_cast<__m512i>(codes), y = reinterpret_cast<__m512i>(others);
  const __m512i turned = _mm512_mask_sub_epi8(y, _mm512_movepi8_mask(x), _mm512_setzero_si512(), y);
  return plus_products(sums, reinterpret_cast<Integers>(_mm512_maskz_abs_epi8(kAll64, x)),
                       reinterpret_cast<Integers>(turned));
}

}  // namespace detail

}  // namespace axonn::cpu
