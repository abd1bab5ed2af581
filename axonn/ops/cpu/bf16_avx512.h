#pragma once

#include <cstdint>

#include <immintrin.h>

#include "axonn/tensor/dtype.h"

// Pairs of bf16 in registers of AVX-512 with its dot products; the build takes this file or
// bf16_portable.h for axonn/ops/cpu/bf16.h. Rounding here makes zero of what is too small for a
// normal number.

namespace axonn::cpu {

constexpr __mmask16 kAll = 0xffff;

/// Whether pairs are multiplied faster than the floats that they stand for.
constexpr bool kDotProducts = true;

/// sum += left.first · right.first + left.second · right.second on 16 lanes, where a float's place
/// holds a pair of bf16, and `left` is the same for all lanes. Assembler, as g++ 12 takes the
/// intrinsic for a change of type and copies every sum to memory in every turn of a loop.
template <typename Lanes>
void add_product(Lanes& sum, float left, const Lanes& right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(Lanes(_mm512_set1_ps(left))), "v"(right));
}

/// The same of pairs that differ from lane to lane on both sides.
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
