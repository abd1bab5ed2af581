#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/tensor/dtype.h"

// Registers of floats from codes by NEON; codes_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  std::uint32_t four;
  std::memcpy(&four, codes, sizeof four);
  const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

[[gnu::always_inline]] inline void pairs_from_bytes(const std::uint8_t* codes,
                                                    Registers::Register& even,
                                                    Registers::Register& odd) {
  const int32x4_t pairs = vmovl_s16(vreinterpret_s16_u8(vld1_u8(codes)));
  even = vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(pairs, 24), 24));
  odd = vcvtq_f32_s32(vshrq_n_s32(pairs, 8));
}

[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, const std::array<float, 16>& values) {
  std::uint16_t two;
  std::memcpy(&two, codes, sizeof two);
  constexpr int32x4_t kShifts = {-4, 0, -12, -8};  // to the right
  const uint32x4_t each = vandq_u32(vshlq_u32(vdupq_n_u32(two), kShifts), vdupq_n_u32(15));
  // The bytes of a value from four times its code on.
  const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), each, 0x04040404);
  const auto* table = reinterpret_cast<const std::uint8_t*>(values.data());
  return vreinterpretq_f32_u8(vqtbl4q_u8(
      {vld1q_u8(table), vld1q_u8(table + 16), vld1q_u8(table + 32), vld1q_u8(table + 48)},
      vreinterpretq_u8_u32(bytes)));
}

inline float from_f16(const std::uint8_t* bytes) {
  __fp16 half;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}

/// Stores the lower halves of words.
inline void store_lower(bf16* to, const Registers::Words& words) {
  vst1_u16(reinterpret_cast<std::uint16_t*>(to), vmovn_u32(reinterpret_cast<uint32x4_t>(words)));
}

}  // namespace detail

}  // namespace axonn::cpu
