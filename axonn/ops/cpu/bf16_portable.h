#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "axonn/tensor/dtype.h"

// bf16 where the processor has no instructions for it; the build takes this file or bf16_avx512.h
// for axonn/ops/cpu/bf16.h.

namespace axonn::cpu {

/// to[i] = from[i], i below 16.
inline void widen_16(float* to, const bf16* from) {
#pragma omp simd
  for (int i = 0; i < 16; ++i) to[i] = get(from[i]);
}

/// to[i] = from[i], rounded to nearest, ties to even, i below 32.
inline void narrow_32(bf16* to, const float* from) {
#pragma omp simd
  for (int i = 0; i < 32; ++i) put(to[i], from[i]);
}

/// Whether pairs are multiplied faster than the floats that they stand for.
constexpr bool kDotProducts = false;

/// sum += left.first · right.first + left.second · right.second on each lane, where a float's place
/// holds a pair of bf16, and `left` is the same for all lanes.
template <typename Lanes>
void add_product(Lanes& sum, float left, const Lanes& right) {
  const auto half = [](float pair, int which) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(pair) << (16 * (1 - which)) &
                                0xffff0000u);
  };
  for (int i = 0; i < static_cast<int>(sizeof(Lanes) / sizeof(float)); ++i)
    for (int which : {0, 1}) sum[i] += half(left, which) * half(right[i], which);
}

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
template <typename T>
void pair_16(float* to, const T* first, const T* second) {
  for (int i = 0; i < 16; ++i) {
    bf16 a, b;
    put(a, get(first[i]));
    put(b, get(second[i]));
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16 | a.bits);
  }
}

}  // namespace axonn::cpu
