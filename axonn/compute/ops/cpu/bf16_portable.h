#pragma once

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/pairs_as_floats.h"
#include "axonn/compute/ops/cpu/parts.h"

// Conversions and products of bf16, on processors without instructions for them. The build copies
// this file or that of a set of instructions to axonn/compute/ops/cpu/bf16.h.

namespace axonn::cpu {

namespace detail {

inline Register widen_bf16(Halves halves) {
  return reinterpret_cast<Register>(words_of(halves) << 16);
}

/// Rounds a register as put() rounds one bf16.
inline Halves narrow_bf16(Register x) {
  using Words = Registers::Words;
  const auto bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, nan = (bits >> 16) | 0x40;
  return halves_of(x == x ? rounded : nan);
}

}  // namespace detail

}  // namespace axonn::cpu
