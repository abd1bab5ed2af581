#pragma once

#include <cstdint>

#include <arm_sve.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/parts.h"
#include "axonn/compute/ops/cpu/times_power.h"

// Arithmetic of registers by SVE's instructions; arithmetic_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

inline Register widen_f16(Halves halves) {
  return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(halves));
}

inline Halves narrow_f16(Register x) {
  return svreinterpret_u32_f16(svcvt_f16_f32_x(svptrue_b32(), x));
}

inline Register least(Register x, Register y) { return x < y ? x : y; }
inline Register greatest(Register x, Register y) { return x > y ? x : y; }
inline Register square_root(Register x) { return svsqrt_f32_x(svptrue_b32(), x); }

/// The f16 of each 128 bits in turns from their lower and upper halves: a word's two are those
/// whose products NEON adds to the same float.
[[gnu::always_inline]] inline Halves in_turns(Register halves) {
  using Each = std::uint16_t __attribute__((vector_size(Registers::kBytes), may_alias));
  Each order;
  for (int i = 0; i < 2 * Registers::kEach; ++i)
    order[i] = static_cast<std::uint16_t>(i / 8 * 8 + i % 2 * 4 + i / 2 % 4);
  return reinterpret_cast<Halves>(__builtin_shuffle(reinterpret_cast<Each>(halves), order));
}

}  // namespace detail

[[gnu::always_inline]] inline void add_f16_products(Registers::Register& sum,
                                                    const Registers::Register& left,
                                                    const Registers::Register& right) {
  const detail::Halves a = detail::in_turns(left), b = detail::in_turns(right);
  sum += detail::widen_f16(a) * detail::widen_f16(b);
  sum += detail::widen_f16(a >> 16) * detail::widen_f16(b >> 16);
}

}  // namespace axonn::cpu
