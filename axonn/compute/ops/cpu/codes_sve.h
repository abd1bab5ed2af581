#pragma once

#include <array>
#include <cstdint>

#include <arm_sve.h>

#include "axonn/compute/ops/cpu/codes_fp16.h"
#include "axonn/compute/ops/cpu/floats.h"

// Registers of floats from codes by SVE; codes_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

inline svfloat32_t from_words(svint32_t words) { return svcvt_f32_s32_x(svptrue_b32(), words); }

[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  return from_words(svld1sb_s32(svptrue_b32(), reinterpret_cast<const std::int8_t*>(codes)));
}

[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, bool higher, const std::array<float, 16>& values) {
  const svbool_t all = svptrue_b32();
  const svuint32_t words = svld1ub_u32(all, codes),
                   each = higher ? svlsr_n_u32_x(all, words, 4) : svand_n_u32_x(all, words, 15);
  const svuint32_t low = svtbl_u32(svreinterpret_u32_f32(svld1_f32(all, values.data())), each);
  if constexpr (Registers::kEach == 16) return svreinterpret_f32_u32(low);
  // Of indices that are not in a register the result is zero.
  const svuint32_t high =
      svtbl_u32(svreinterpret_u32_f32(svld1_f32(all, values.data() + Registers::kEach)),
                svsub_n_u32_x(all, each, Registers::kEach));
  return svreinterpret_f32_u32(svorr_u32_x(all, low, high));
}

[[gnu::always_inline]] inline Registers::Register plus_if_set(const Registers::Register& x,
                                                              const std::uint8_t* bits, int first,
                                                              float number) {
  const svbool_t all = svptrue_b32();
  std::uint32_t word = *bits;
  if constexpr (Registers::kEach == 16) word |= std::uint32_t{bits[1]} << 8;
  const svuint32_t each = svlsr_u32_x(all, svdup_u32(word >> first), svindex_u32(0, 1));
  const svbool_t set = svcmpne_n_u32(all, svand_n_u32_x(all, each, 1), 0);
  return svadd_n_f32_m(set, x, number);
}

}  // namespace detail

}  // namespace axonn::cpu
