#pragma once

#include <cstdint>

#include "axonn/compute/ops/cpu/floats.h"

// For sets of instructions without products of bytes: declares, for templates that are not used,
// what integers_avx2.h describes.

namespace axonn::cpu {

constexpr bool kHasIntegers = false;
using Integers = std::uint64_t __attribute__((vector_size(kRegisterBytes), may_alias));
constexpr int kSignedOffset = 0;
constexpr bool kAddsPairs = false;

namespace detail {

Integers integers_at(const void* bytes);
Integers same_32(const std::uint8_t* bytes, int i);
Integers blocks_of_32(const std::uint8_t* first, int apart, int i);
Integers blocks_of_16(const std::uint8_t* first, int apart, int i);
Integers plus_if_set(Integers codes, const std::uint8_t* first, int apart, int i, char number);
template <int each>
Register spread(const float* numbers, int i);
Register as_floats(Integers words);
Integers plus_products(Integers sums, Integers codes, Integers others);
Integers plus_signed_products(Integers sums, Integers codes, Integers others);
Integers plus_pair_products(Integers pairs, Integers codes, Integers others);
Integers plus_pairs(Integers sums, Integers pairs);
Integers wide_codes(Integers codes, int first);
Integers plus_wide_products(Integers sums, Integers codes, Integers others);

}  // namespace detail

}  // namespace axonn::cpu
