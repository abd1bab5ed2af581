#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "axonn/tensor/dtype.h"

// Pairs of bf16 on processors without instructions for them. The build copies this file or
// bf16_avx512.h to axonn/ops/cpu/bf16.h.

namespace axonn::cpu {

/// Whether multiplying pairs of bf16 is faster than multiplying them as floats.
constexpr bool kDotProducts = false;

/// sum += left.first · right.first + left.second · right.second on each lane; each float of left
/// and right holds a pair of bf16.
template <typename Lanes>
void add_pair_products(Lanes& sum, const Lanes& left, const Lanes& right) {
  // A typedef: g++ 12 drops the attribute of an alias whose size depends on a template.
  typedef std::uint32_t Words __attribute__((vector_size(sizeof(Lanes))));
  const auto a = std::bit_cast<Words>(left), b = std::bit_cast<Words>(right);
  sum += std::bit_cast<Lanes>(a << 16) * std::bit_cast<Lanes>(b << 16);
  sum += std::bit_cast<Lanes>(a & 0xffff0000u) * std::bit_cast<Lanes>(b & 0xffff0000u);
}

/// The same with one `left` for all lanes.
template <typename Lanes>
void add_product(Lanes& sum, float left, const Lanes& right) {
  add_pair_products(sum, left - Lanes{}, right);
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
