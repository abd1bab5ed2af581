#pragma once

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/floats.h"

// Conversions and products of bf16 by ARMv8.6's instructions for NEON (bfcvtn, bfdot), which
// neon-bf16 has; bf16_portable.h and pairs_as_floats.h describe the functions. The two products of
// a pair are added with one rounding more, to odd, and subnormal numbers count as zero.

namespace axonn::cpu {

namespace detail {

inline Register widen_bf16(Registers::HalfWords halves) {
  return reinterpret_cast<Register>(vshll_n_u16(reinterpret_cast<uint16x4_t>(halves), 16));
}

inline Registers::HalfWords narrow_bf16(Register x) {
  return reinterpret_cast<Registers::HalfWords>(vcvt_bf16_f32(x));
}

}  // namespace detail

constexpr bool kDotProducts = true;

[[gnu::always_inline]] inline void add_pair_products(Registers::Register& sum,
                                                     const Registers::Register& left,
                                                     const Registers::Register& right) {
  sum =
      vbfdotq_f32(sum, reinterpret_cast<bfloat16x8_t>(left), reinterpret_cast<bfloat16x8_t>(right));
}

[[gnu::always_inline]] inline void add_product(Registers::Register& sum, float left,
                                               const Registers::Register& right) {
  sum = vbfdotq_lane_f32(sum, reinterpret_cast<bfloat16x8_t>(right),
                         vreinterpret_bf16_f32(vdup_n_f32(left)), 0);
}

/// sum (2, 2) += left (2, 4) · right (2, 4) transposed: twice two products, as by bfdot.
struct NeonBlocks {
  static Registers::Register left(const float* p) {
    return *reinterpret_cast<const Registers::Unaligned*>(p);
  }
  [[gnu::always_inline]] static void add(Registers::Register& sum, const Registers::Register& left,
                                         const Registers::Register& right) {
    sum = vbfmmlaq_f32(sum, reinterpret_cast<bfloat16x8_t>(left),
                       reinterpret_cast<bfloat16x8_t>(right));
  }
  /// Pieces of 64 bits in turns: the lower or upper ones of two registers.
  template <bool upper>
  static Registers::Register zip(const Registers::Register& a, const Registers::Register& b) {
    const auto x = reinterpret_cast<float64x2_t>(a), y = reinterpret_cast<float64x2_t>(b);
    return reinterpret_cast<Registers::Register>(upper ? vzip2q_f64(x, y) : vzip1q_f64(x, y));
  }
  /// The even or odd pieces of 64 bits of two registers: undoes zip().
  template <bool odd>
  static Registers::Register unzip(const Registers::Register& a, const Registers::Register& b) {
    return zip<odd>(a, b);  // a register has two pieces
  }
};
using BlockProduct = NeonBlocks;

}  // namespace axonn::cpu
