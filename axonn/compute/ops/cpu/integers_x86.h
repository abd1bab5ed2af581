#pragma once

#include <cstdint>

#include "axonn/compute/ops/cpu/architecture.h"

// What integers_avx2.h and integers_avx512.h share: the same instructions for both registers.

namespace axonn::cpu {

/// A register of bytes, or of words of 32 bits.
using Integers = std::uint64_t __attribute__((vector_size(kRegisterBytes), may_alias));

namespace detail {

/// Pairs, each plus the products of two codes and two other bytes, from -127 to 127. By assembly,
/// since g++ would keep the products of a whole tile in memory before it adds them.
[[gnu::always_inline]] inline Integers plus_pair_products(Integers pairs, Integers codes,
                                                          Integers others) {
  Integers products;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
      : "+v"(pairs), "=&v"(products)
      : "v"(codes), "v"(others));
  return pairs;
}
/// The codes 0 and 2, or 1 and 3, of each word, in 16 bits with their signs.
[[gnu::always_inline]] inline Integers wide_codes(Integers codes, int first) {
  using Wide = std::int16_t __attribute__((vector_size(kRegisterBytes), may_alias));
  const auto both = reinterpret_cast<Wide>(codes);
  return reinterpret_cast<Integers>((first == 0 ? both << 8 : both) >> 8);
}
/// Words of sums, each plus two products of two numbers of 16 bits.
[[gnu::always_inline]] inline Integers plus_wide_products(Integers sums, Integers codes,
                                                          Integers others) {
  Integers products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+v"(sums), "=&v"(products)
      : "v"(codes), "v"(others));
  return sums;
}

}  // namespace detail

}  // namespace axonn::cpu
