#pragma once

#include <cmath>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/times_power.h"
#include "axonn/compute/tensor/dtype.h"

// Arithmetic of registers that processors have special instructions for: f16 and powers of two. The
// build copies this file or that of a family of processors to axonn/compute/ops/cpu/arithmetic.h.

namespace axonn::cpu {

namespace detail {

struct AddToWords {
  Registers::Words operator()(Registers::Words words, float x) const {
    return reinterpret_cast<Registers::Words>(reinterpret_cast<Register>(words) + x);
  }
};

/// From f16 in words.
inline Register widen_f16_words(Registers::Words halves) {
  return reinterpret_cast<Register>(widened_f16(halves, AddToWords{}));
}
inline Register widen_f16(Registers::HalfWords halves) {
  return widen_f16_words(__builtin_convertvector(halves, Registers::Words));
}

/// Rounds a register as put() rounds one f16.
inline Registers::HalfWords narrow_f16(Register x) {
  return __builtin_convertvector(narrowed_f16(reinterpret_cast<Registers::Words>(x), AddToWords{}),
                                 Registers::HalfWords);
}

inline Register least(Register x, Register y) { return x < y ? x : y; }
inline Register greatest(Register x, Register y) { return x > y ? x : y; }
inline Register square_root(Register x) {
  for (int i = 0; i < Registers::kEach; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

}  // namespace detail

/// add_pair_products() of pairs of f16.
[[gnu::always_inline]] inline void add_f16_products(Registers::Register& sum,
                                                    const Registers::Register& left,
                                                    const Registers::Register& right) {
  using Words = Registers::Words;
  const auto a = reinterpret_cast<Words>(left), b = reinterpret_cast<Words>(right);
  sum += detail::widen_f16_words(a & 0xffffu) * detail::widen_f16_words(b & 0xffffu);
  sum += detail::widen_f16_words(a >> 16) * detail::widen_f16_words(b >> 16);
}

}  // namespace axonn::cpu
