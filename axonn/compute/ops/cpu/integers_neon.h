#pragma once

#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "axonn/compute/ops/cpu/architecture.h"
#include "axonn/compute/ops/cpu/codes_fp16.h"
#include "axonn/compute/ops/cpu/floats.h"

// Products of bytes by NEON, with sdot if the set has it; integers_avx2.h describes the functions.
// A strip has four registers: the halves of its first block, then those of the second.

namespace axonn::cpu {

constexpr bool kHasIntegers = true;
using Integers = std::uint64_t __attribute__((vector_size(kRegisterBytes), may_alias));
constexpr int kSignedOffset = 0;
constexpr bool kAddsPairs = false;

namespace detail {

[[gnu::always_inline]] inline Integers integers_at(const void* bytes) {
  return reinterpret_cast<Integers>(vld1q_u8(static_cast<const std::uint8_t*>(bytes)));
}
[[gnu::always_inline]] inline Integers same_32(const std::uint8_t* bytes, int i) {
  return integers_at(bytes + i % 2 * 16);
}
[[gnu::always_inline]] inline Integers blocks_of_32(const std::uint8_t* first, int apart, int i) {
  return integers_at(first + i / 2 * apart + i % 2 * 16);
}
[[gnu::always_inline]] inline Integers blocks_of_16(const std::uint8_t* first, int apart, int i) {
  return integers_at(first + i / 2 * apart);
}
[[gnu::always_inline]] inline Integers plus_if_set(Integers codes, const std::uint8_t* first,
                                                   int apart, int i, char number) {
  constexpr std::uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const std::uint8_t* const bits = first + i / 2 * apart + i % 2 * 2;
  const uint8x16_t set = vtstq_u8(vcombine_u8(vdup_n_u8(bits[0]), vdup_n_u8(bits[1])),
                                  vld1q_u8(kBits)),
                   more = vandq_u8(set, vdupq_n_u8(static_cast<std::uint8_t>(number)));
  return codes | reinterpret_cast<Integers>(more);
}
template <int each>
[[gnu::always_inline]] inline Register spread(const float* numbers, int i) {
  return numbers[each == 32 ? i / 2 : i] - Register{};
}
[[gnu::always_inline]] inline Register as_floats(Integers words) {
  return vcvtq_f32_s32(reinterpret_cast<int32x4_t>(words));
}

[[gnu::always_inline]] inline Integers plus_signed_products(Integers sums, Integers codes,
                                                            Integers others) {
  if constexpr (kMultipliesBytes) {
    asm("sdot %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(codes), "w"(others));
    return sums;
  }
  const auto x = reinterpret_cast<int8x16_t>(codes), y = reinterpret_cast<int8x16_t>(others);
  const int16x8_t pairs = vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)), vmull_high_s8(x, y));
  return reinterpret_cast<Integers>(vpadalq_s16(reinterpret_cast<int32x4_t>(sums), pairs));
}
[[gnu::always_inline]] inline Integers plus_products(Integers sums, Integers codes,
                                                     Integers others) {
  return plus_signed_products(sums, codes, others);
}
Integers plus_pair_products(Integers pairs, Integers codes, Integers others);
Integers plus_pairs(Integers sums, Integers pairs);
Integers wide_codes(Integers codes, int first);
Integers plus_wide_products(Integers sums, Integers codes, Integers others);

}  // namespace detail

}  // namespace axonn::cpu
