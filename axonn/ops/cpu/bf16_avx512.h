#pragma once

#include <cstdint>

#include <immintrin.h>

#include "axonn/tensor/dtype.h"

// Pairs of bf16 in AVX-512 registers, by its bf16 dot products. The build copies this file or
// bf16_portable.h to axonn/ops/cpu/bf16.h. Rounding here turns subnormal results into zero.

namespace axonn::cpu {

constexpr __mmask16 kAll = 0xffff;

/// Whether multiplying pairs of bf16 is faster than multiplying them as floats.
constexpr bool kDotProducts = true;

/// sum += left.first · right.first + left.second · right.second on 16 lanes; each float of left and
/// right holds a pair of bf16, and `left` is the same for all lanes. Assembly, because with the
/// intrinsic g++ 12 sees a change of type and copies every sum to memory in every iteration.
template <typename Lanes>
void add_product(Lanes& sum, float left, const Lanes& right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(Lanes(_mm512_set1_ps(left))), "v"(right));
}

/// The same with a `left` that differs from lane to lane.
template <typename Lanes>
void add_pair_products(Lanes& sum, const Lanes& left, const Lanes& right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
}

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
inline void pair_16(float* to, const float* first, const float* second) {
  using Words = std::uint32_t __attribute__((vector_size(64)));
  constexpr Words kLow{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto zipped = reinterpret_cast<__m512i>(kLow | (kLow + 16) << 16);
  const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
  _mm512_storeu_si512(
      to, _mm512_maskz_permutexvar_epi16(~0u, zipped, reinterpret_cast<__m512i>(halves)));
}

/// to[i] = the pair (first[i], second[i]), i below 16.
inline void pair_16(float* to, const bf16* first, const bf16* second) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first)),
                high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  const __m512i words = _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, high), 16);
  _mm512_storeu_si512(to, _mm512_or_si512(words, _mm512_maskz_cvtepu16_epi32(kAll, low)));
}

}  // namespace axonn::cpu
