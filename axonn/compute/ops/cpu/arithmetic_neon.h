#pragma once

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/rowwise/math.h"

// Arithmetic of registers by NEON's instructions; arithmetic_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

inline Register widen_f16(Registers::HalfWords halves) {
  return vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves));
}

inline Registers::HalfWords narrow_f16(Register x) {
  return reinterpret_cast<Registers::HalfWords>(vcvt_f16_f32(x));
}

inline Register least(Register x, Register y) { return x < y ? x : y; }
inline Register greatest(Register x, Register y) { return x > y ? x : y; }
inline Register square_root(Register x) { return vsqrtq_f32(x); }
inline Register times_power(Register x, Register n) {
  const Register shifted = vminq_f32(n, vdupq_n_f32(127)) + rowwise::kRound;
  const Registers::Words scaled =
      reinterpret_cast<Registers::Words>(x) + (reinterpret_cast<Registers::Words>(shifted) << 23);
  return vreinterpretq_f32_u32(
      vbicq_u32(reinterpret_cast<uint32x4_t>(scaled), vcltq_f32(n, vdupq_n_f32(-126))));
}

}  // namespace detail

/// The two products of a float belong to different pairs.
[[gnu::always_inline]] inline void add_f16_products(Registers::Register& sum,
                                                    const Registers::Register& left,
                                                    const Registers::Register& right) {
  const auto a = reinterpret_cast<float16x8_t>(left), b = reinterpret_cast<float16x8_t>(right);
  sum += Registers::Register(vcvt_f32_f16(vget_low_f16(a)) * vcvt_f32_f16(vget_low_f16(b)));
  sum += Registers::Register(vcvt_high_f32_f16(a) * vcvt_high_f32_f16(b));
}

}  // namespace axonn::cpu
