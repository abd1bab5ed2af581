#pragma once

#include <cstdint>
#include <cstring>

#include <arm_sve.h>

#include "axonn/compute/ops/cpu/architecture.h"
#include "axonn/compute/ops/cpu/codes_fp16.h"
#include "axonn/compute/ops/cpu/floats.h"

// Products of bytes by SVE of 256 bits; integers_avx2.h describes the functions.

namespace axonn::cpu {

constexpr bool kHasIntegers = true;
using Integers = std::uint64_t __attribute__((vector_size(kRegisterBytes), may_alias));
constexpr int kSignedOffset = 0;
constexpr bool kAddsPairs = false;

namespace detail {

static_assert(kRegisterBytes == 32);

inline svint8_t as_bytes(Integers x) { return svreinterpret_s8_u64(x); }
inline Integers from_bytes_of(svuint8_t x) { return svreinterpret_u64_u8(x); }

[[gnu::always_inline]] inline Integers integers_at(const void* bytes) {
  return from_bytes_of(svld1_u8(svptrue_b8(), static_cast<const std::uint8_t*>(bytes)));
}
[[gnu::always_inline]] inline Integers same_32(const std::uint8_t* bytes, int) {
  return integers_at(bytes);
}
[[gnu::always_inline]] inline Integers blocks_of_32(const std::uint8_t* first, int apart, int i) {
  return integers_at(first + i * apart);
}
[[gnu::always_inline]] inline Integers blocks_of_16(const std::uint8_t* first, int apart, int i) {
  return from_bytes_of(svld1rq_u8(svptrue_b8(), first + i * apart));
}
[[gnu::always_inline]] inline Integers plus_if_set(Integers codes, const std::uint8_t* first,
                                                   int apart, int i, char number) {
  std::uint32_t bits;
  std::memcpy(&bits, first + i * apart, sizeof bits);
  const svbool_t all = svptrue_b8();
  const svuint8_t at = svindex_u8(0, 1),
                  bytes = svtbl_u8(svreinterpret_u8_u32(svdup_u32(bits)), svlsr_n_u8_x(all, at, 3)),
                  bit = svlsl_u8_x(all, svdup_u8(1), svand_n_u8_x(all, at, 7));
  const svbool_t set = svcmpne_n_u8(all, svand_u8_x(all, bytes, bit), 0);
  return codes | from_bytes_of(svdup_n_u8_z(set, static_cast<std::uint8_t>(number)));
}
template <int each>
[[gnu::always_inline]] inline Register spread(const float* numbers, int i) {
  if constexpr (each == 32) return numbers[i] - Register{};
  const svbool_t lower = svcmplt_n_u32(svptrue_b32(), svindex_u32(0, 1), 4);
  return svsel_f32(lower, svdup_f32(numbers[2 * i]), svdup_f32(numbers[2 * i + 1]));
}
[[gnu::always_inline]] inline Register as_floats(Integers words) {
  return svcvt_f32_s32_x(svptrue_b32(), svreinterpret_s32_u64(words));
}

[[gnu::always_inline]] inline Integers plus_signed_products(Integers sums, Integers codes,
                                                            Integers others) {
  return svreinterpret_u64_s32(
      svdot_s32(svreinterpret_s32_u64(sums), as_bytes(codes), as_bytes(others)));
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
