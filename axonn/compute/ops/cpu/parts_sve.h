#pragma once

#include <cstdint>
#include <type_traits>

#include <arm_sve.h>

#include "axonn/compute/ops/cpu/floats.h"

// The first elements of a register in memory, halves of 16 bits, and doubles, by SVE with registers
// of a fixed length; parts_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

/// In the lower halves of words, where SVE loads, converts and stores them.
using Halves = Registers::Words;

inline Registers::Words words_of(Halves halves) { return halves; }
inline Halves halves_of(Registers::Words words) { return words; }

inline Register joined(Halves first, Halves second) {
  return svreinterpret_f32_u16(
      svuzp1_u16(svreinterpret_u16_u32(first), svreinterpret_u16_u32(second)));
}

constexpr bool kMasksParts = true;

/// The mask of the first `count` elements.
[[gnu::always_inline]] inline svbool_t first_elements(auto count) {
  if constexpr (std::is_same_v<decltype(count), int>)
    return svwhilelt_b32(0, count);
  else
    return svptrue_b32();
}

[[gnu::always_inline]] inline Register load_floats(const float* p, auto count) {
  if constexpr (std::is_same_v<decltype(count), int>)
    return svld1_f32(first_elements(count), p);
  else
    return *reinterpret_cast<const Registers::Unaligned*>(p);
}
[[gnu::always_inline]] inline Halves load_halves(const auto* p, auto count) {
  return svld1uh_u32(first_elements(count), reinterpret_cast<const std::uint16_t*>(p));
}

[[gnu::always_inline]] inline void store_floats(float* p, Register x, auto count) {
  if constexpr (std::is_same_v<decltype(count), int>)
    svst1_f32(first_elements(count), p, x);
  else
    *reinterpret_cast<Registers::Unaligned*>(p) = x;
}
[[gnu::always_inline]] inline void store_halves(auto* p, Halves halves, auto count) {
  svst1h_u32(first_elements(count), reinterpret_cast<std::uint16_t*>(p), halves);
}

/// Doubles of the floats in the lower halves of words of 64 bits.
inline Registers::Doubles doubles_of(svuint64_t words) {
  return svcvt_f64_f32_x(svptrue_b64(), svreinterpret_f32_u64(words));
}

}  // namespace detail

inline Registers::Doubles lower(Registers::Register x) {
  return detail::doubles_of(svunpklo_u64(svreinterpret_u32_f32(x)));
}
inline Registers::Doubles upper(Registers::Register x) {
  return detail::doubles_of(svunpkhi_u64(svreinterpret_u32_f32(x)));
}

}  // namespace axonn::cpu
