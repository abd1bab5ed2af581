#pragma once

#include <arm_sve.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/parts.h"

// Conversions and products of bf16 by SVE's instructions (bfcvt, bfdot), with the same results as
// bf16_bfdot.h; bf16_portable.h and pairs_as_floats.h describe the functions.

namespace axonn::cpu {

namespace detail {

inline Register widen_bf16(Halves halves) { return reinterpret_cast<Register>(halves << 16); }

inline Halves narrow_bf16(Register x) {
  return svreinterpret_u32_bf16(svcvt_bf16_f32_x(svptrue_b32(), x));
}

}  // namespace detail

constexpr bool kDotProducts = true;

[[gnu::always_inline]] inline void add_pair_products(Registers::Register& sum,
                                                     const Registers::Register& left,
                                                     const Registers::Register& right) {
  sum = svbfdot_f32(sum, svreinterpret_bf16_f32(left), svreinterpret_bf16_f32(right));
}

[[gnu::always_inline]] inline void add_product(Registers::Register& sum, float left,
                                               const Registers::Register& right) {
  add_pair_products(sum, left - Registers::Register{}, right);
}

/// In each 128 bits of a register; all have the same left operand.
struct SveBlocks {
  static Registers::Register left(const float* p) { return svld1rq_f32(svptrue_b32(), p); }
  [[gnu::always_inline]] static void add(Registers::Register& sum, const Registers::Register& left,
                                         const Registers::Register& right) {
    sum = svbfmmla_f32(sum, svreinterpret_bf16_f32(left), svreinterpret_bf16_f32(right));
  }
  /// Pieces of 64 bits in turns: the lower or upper ones of two registers.
  template <bool upper>
  static Registers::Register zip(const Registers::Register& a, const Registers::Register& b) {
    const auto x = svreinterpret_f64_f32(a), y = svreinterpret_f64_f32(b);
    return svreinterpret_f32_f64(upper ? svzip2_f64(x, y) : svzip1_f64(x, y));
  }
  /// The even or odd pieces of 64 bits of two registers: undoes zip().
  template <bool odd>
  static Registers::Register unzip(const Registers::Register& a, const Registers::Register& b) {
    const auto x = svreinterpret_f64_f32(a), y = svreinterpret_f64_f32(b);
    return svreinterpret_f32_f64(odd ? svuzp2_f64(x, y) : svuzp1_f64(x, y));
  }
};
using BlockProduct = SveBlocks;

}  // namespace axonn::cpu
