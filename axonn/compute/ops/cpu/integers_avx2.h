#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "axonn/compute/ops/cpu/architecture.h"
#include "axonn/compute/ops/cpu/codes_f16c.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/integers_x86.h"

// Products of bytes by AVX2. A strip of 64 codes takes as many registers as Lanes: here register i
// has those of block i of 32. The build copies this file or that of another set of instructions to
// axonn/compute/ops/cpu/integers.h.

namespace axonn::cpu {

/// Whether the set of instructions has what is below.
constexpr bool kHasIntegers = true;

/// plus_signed_products() multiplies codes plus this number; what its sums begin with makes up for
/// that.
constexpr int kSignedOffset = 0;
/// Whether products of bytes come as pairs, the sums of two in 16 bits.
constexpr bool kAddsPairs = true;

namespace detail {

inline __m256i bytes_32(const std::uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

/// A register of bytes that lie anywhere.
[[gnu::always_inline]] inline Integers integers_at(const void* bytes) {
  return reinterpret_cast<Integers>(bytes_32(static_cast<const std::uint8_t*>(bytes)));
}
/// Register i of a strip whose halves are the same 32 bytes.
[[gnu::always_inline]] inline Integers same_32(const std::uint8_t* bytes, int) {
  return integers_at(bytes);
}
/// Register i of a strip of two blocks of 32 bytes, so many bytes apart.
[[gnu::always_inline]] inline Integers blocks_of_32(const std::uint8_t* first, int apart, int i) {
  return integers_at(first + i * apart);
}
/// The same of blocks of 16 bytes, each of them twice.
[[gnu::always_inline]] inline Integers blocks_of_16(const std::uint8_t* first, int apart, int i) {
  const auto* const bytes = reinterpret_cast<const __m128i*>(first + i * apart);
  return reinterpret_cast<Integers>(_mm256_broadcastsi128_si256(_mm_loadu_si128(bytes)));
}
/// Register i of codes, plus a number where the bit of a code is set: 32 bits of each block.
[[gnu::always_inline]] inline Integers plus_if_set(Integers codes, const std::uint8_t* first,
                                                   int apart, int i, char number) {
  std::int32_t bits;
  std::memcpy(&bits, first + i * apart, sizeof bits);
  const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                             0x0303030303030303),
                bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201)),
                bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of),
                set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
  return codes | reinterpret_cast<Integers>(_mm256_and_si256(set, _mm256_set1_epi8(number)));
}
/// Register i of numbers of which each is for so many codes, 16 or 32.
template <int each>
[[gnu::always_inline]] inline Register spread(const float* numbers, int i) {
  if constexpr (each == 32) return numbers[i] - Register{};
  const __m256d two = _mm256_broadcast_sd(reinterpret_cast<const double*>(numbers + 2 * i));
  return _mm256_permutevar_ps(_mm256_castpd_ps(two), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}
/// Words as floats.
[[gnu::always_inline]] inline Register as_floats(Integers words) {
  return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(words));
}

/// sums + pairs, joined.
[[gnu::always_inline]] inline Integers plus_pairs(Integers sums, Integers pairs) {
  const __m256i words = _mm256_madd_epi16(reinterpret_cast<__m256i>(pairs), _mm256_set1_epi16(1));
  return reinterpret_cast<Integers>(_mm256_add_epi32(reinterpret_cast<__m256i>(sums), words));
}
/// Words of sums, each plus the products of four codes, from 0 to 64, and four other bytes, from
/// -127 to 127.
[[gnu::always_inline]] inline Integers plus_products(Integers sums, Integers codes,
                                                     Integers others) {
  const __m256i pairs =
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes), reinterpret_cast<__m256i>(others));
  return plus_pairs(sums, reinterpret_cast<Integers>(pairs));
}
/// The same of codes with signs.
[[gnu::always_inline]] inline Integers plus_signed_products(Integers sums, Integers codes,
                                                            Integers others) {
  const auto x = reinterpret_cast<__m256i>(codes), y = reinterpret_cast<__m256i>(others);
  return plus_products(sums, reinterpret_cast<Integers>(_mm256_abs_epi8(x)),
                       reinterpret_cast<Integers>(_mm256_sign_epi8(y, x)));
}

}  // namespace detail

}  // namespace axonn::cpu
