#pragma once

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/pairs_as_floats.h"

// Conversions of bf16 by the instructions of every 64-bit ARM processor; its products are those of
// floats. bf16_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

inline Register widen_bf16(Registers::HalfWords halves) {
  return reinterpret_cast<Register>(vshll_n_u16(reinterpret_cast<uint16x4_t>(halves), 16));
}

inline Registers::HalfWords narrow_bf16(Register x) {
  const auto bits = reinterpret_cast<uint32x4_t>(x);
  const uint32x4_t last = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint16x4_t rounded = vaddhn_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), last),
                   nan = vorr_u16(vshrn_n_u32(bits, 16), vdup_n_u16(0x40));
  return reinterpret_cast<Registers::HalfWords>(vbsl_u16(vmovn_u32(vceqq_f32(x, x)), rounded, nan));
}

}  // namespace detail

}  // namespace axonn::cpu
