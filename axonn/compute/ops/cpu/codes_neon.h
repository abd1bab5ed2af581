#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/codes_fp16.h"
#include "axonn/compute/ops/cpu/floats.h"

// Registers of floats from codes by NEON; codes_portable.h describes the functions.

namespace axonn::cpu {

namespace detail {

[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  std::uint32_t four;
  std::memcpy(&four, codes, sizeof four);
  const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, bool higher, const std::array<float, 16>& values) {
  std::uint32_t four;
  std::memcpy(&four, codes, sizeof four);
  const uint8x8_t bytes_of_codes = vreinterpret_u8_u32(vdup_n_u32(four)),
                  halves = higher ? vshr_n_u8(bytes_of_codes, 4)
                                  : vand_u8(bytes_of_codes, vdup_n_u8(15));
  const uint32x4_t each = vmovl_u16(vget_low_u16(vmovl_u8(halves)));
  // The bytes of a value from four times its code on.
  const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), each, 0x04040404);
  const auto* table = reinterpret_cast<const std::uint8_t*>(values.data());
  return vreinterpretq_f32_u8(vqtbl4q_u8(
      {vld1q_u8(table), vld1q_u8(table + 16), vld1q_u8(table + 32), vld1q_u8(table + 48)},
      vreinterpretq_u8_u32(bytes)));
}

[[gnu::always_inline]] inline Registers::Register plus_if_set(const Registers::Register& x,
                                                              const std::uint8_t* bits, int first,
                                                              float number) {
  constexpr std::uint32_t kEach[4] = {1, 2, 4, 8};
  const uint32x4_t set = vtstq_u32(vdupq_n_u32(*bits >> first), vld1q_u32(kEach));
  return x + vreinterpretq_f32_u32(vandq_u32(set, vreinterpretq_u32_f32(vdupq_n_f32(number))));
}

}  // namespace detail

}  // namespace axonn::cpu
