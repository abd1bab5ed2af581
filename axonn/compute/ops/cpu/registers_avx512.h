#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/tensor/dtype.h"

// Loads and stores of strips, arithmetic that has special instructions, and pairs of bf16, by
// AVX-512, its conversions of bf16 and f16 and its dot products of bf16. The build copies this file
// or registers_portable.h to axonn/compute/ops/cpu/registers.h. Rounding to bf16 here turns
// subnormal results into zero.

namespace axonn::cpu {

/// The number of a strip's elements: all of them, or else an int from 1 to kCount - 1.
using Whole = std::integral_constant<int, Floats::kCount>;

/// The order of a strip of bf16 in registers: that of memory, or zipped, the order that takes the
/// fewest instructions to make and undo. Strips of f32 and incomplete strips are in memory's order.
enum class Order { memory, zipped };

namespace detail {

/// The mask of those of elements 16·i to 16·i + 15 that are below n.
inline __mmask16 mask_16(int n, int i) {
  return static_cast<__mmask16>(_bzhi_u64(~0ull, static_cast<unsigned>(n)) >> (16 * i));
}
inline __mmask32 mask_32(int n, int i) {
  return static_cast<__mmask32>(_bzhi_u64(~0ull, static_cast<unsigned>(n)) >> (32 * i));
}

/// Rounds to 32 bf16, the second 16 from `high`.
inline __m512i narrow(__m512 low, __m512 high) {
  const __m512bh halves = _mm512_cvtne2ps_pbh(high, low);
  return reinterpret_cast<const __m512i&>(halves);
}

/// A register of bf16 in the order of memory, rounded from two of floats.
inline Registers::Register narrow_two(Registers::Register low, Registers::Register high) {
  return _mm512_castsi512_ps(narrow(low, high));
}

/// The permutation that brings 64-bit pieces of zipped halves to the order of memory.
inline __m512i unzipped() { return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); }

/// Two registers of floats in zipped order, from 32 bf16.
inline void widen_zipped(__m512i halves, __m512& low, __m512& high) {
  const __m512i zero = _mm512_setzero_si512();
  low = _mm512_castsi512_ps(_mm512_maskz_unpacklo_epi16(~0u, zero, halves));
  high = _mm512_castsi512_ps(_mm512_maskz_unpackhi_epi16(~0u, zero, halves));
}

struct IntegerHalves {
  __m256i low, high;
};
struct FloatHalves {
  __m256 low, high;
};

/// 16 floats from 16 bf16 in the order of memory. Masked, because g++ 12 warns otherwise.
inline __m512 widen(__m256i halves) {
  const __m512i words = _mm512_maskz_cvtepu16_epi32(0xffff, halves);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, words, 16));
}
inline void widen(__m512i halves, __m512& low, __m512& high) {
  const auto both = std::bit_cast<IntegerHalves>(halves);
  low = widen(both.low);
  high = widen(both.high);
}

/// The same from f16, and back; rounds to nearest, ties to even.
inline __m512 widen_f16(__m256i halves) { return _mm512_maskz_cvtph_ps(0xffff, halves); }
inline __m256i narrow_f16(__m512 x) {
  return _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT);
}
/// Rounds a register as put() rounds one bf16 or f16, T.
template <typename T>
inline __m256i narrow(Registers::Register x) {
  if constexpr (std::is_same_v<T, f16>)
    return narrow_f16(x);
  else
    return std::bit_cast<IntegerHalves>(narrow(x, x)).low;
}
/// The same, one after another from the first byte on.
template <typename T>
inline __m256i narrow_in_order(Registers::Register x) {
  return narrow<T>(x);
}

}  // namespace detail

/// Loads the first n elements from p; the rest is zero.
template <Order, typename N>
[[gnu::always_inline]] inline Floats load(const float* p, N n) {
  Floats x;
  Floats::for_each([&](int i) {
    if constexpr (std::is_same_v<N, Whole>)
      x.r[i] = _mm512_loadu_ps(p + 16 * i);
    else
      x.r[i] = _mm512_maskz_loadu_ps(detail::mask_16(n, i), p + 16 * i);
  });
  return x;
}

template <Order order, typename N>
[[gnu::always_inline]] inline Floats load(const bf16* p, N n) {
  Floats x;
  for (int i = 0; i < 2; ++i) {
    if constexpr (!std::is_same_v<N, Whole>) {
      const __m512i halves = _mm512_maskz_loadu_epi16(detail::mask_32(n, i), p + 32 * i);
      detail::widen(halves, x.r[2 * i], x.r[2 * i + 1]);
    } else if constexpr (order == Order::zipped) {
      detail::widen_zipped(_mm512_loadu_si512(p + 32 * i), x.r[2 * i], x.r[2 * i + 1]);
    } else {
      for (int j = 2 * i; j < 2 * i + 2; ++j)
        x.r[j] = detail::widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16 * j)));
    }
  }
  return x;
}

template <Order, typename N>
[[gnu::always_inline]] inline Floats load(const f16* p, N n) {
  Floats x;
  Floats::for_each([&](int i) {
    if constexpr (std::is_same_v<N, Whole>)
      x.r[i] = detail::widen_f16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16 * i)));
    else
      x.r[i] = detail::widen_f16(_mm256_maskz_loadu_epi16(detail::mask_16(n, i), p + 16 * i));
  });
  return x;
}

/// A register of floats from as many bf16 or f16.
[[gnu::always_inline]] inline Floats::Register load_register(const bf16* p) {
  return detail::widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
[[gnu::always_inline]] inline Floats::Register load_register(const f16* p) {
  return detail::widen_f16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

/// Stores the first n elements of x to p; returns what p then holds, like load().
template <Order, typename N>
[[gnu::always_inline]] inline Floats store(float* p, const Floats& x, N n) {
  Floats::for_each([&](int i) {
    if constexpr (std::is_same_v<N, Whole>)
      _mm512_storeu_ps(p + 16 * i, x.r[i]);
    else
      _mm512_mask_storeu_ps(p + 16 * i, detail::mask_16(n, i), x.r[i]);
  });
  return x;
}

/// Rounds to nearest, ties to even.
template <Order order, typename N>
[[gnu::always_inline]] inline Floats store(bf16* p, const Floats& x, N n) {
  Floats held;
  for (int i = 0; i < 2; ++i) {
    __m512i halves = detail::narrow(x.r[2 * i], x.r[2 * i + 1]);
    if constexpr (std::is_same_v<N, Whole> && order == Order::zipped) {
      halves = _mm512_maskz_permutexvar_epi64(0xff, detail::unzipped(), halves);
      detail::widen_zipped(halves, held.r[2 * i], held.r[2 * i + 1]);
    } else {
      detail::widen(halves, held.r[2 * i], held.r[2 * i + 1]);
    }
    if constexpr (std::is_same_v<N, Whole>)
      _mm512_storeu_si512(p + 32 * i, halves);
    else
      _mm512_mask_storeu_epi16(p + 32 * i, detail::mask_32(n, i), halves);
  }
  return held;
}

template <Order, typename N>
[[gnu::always_inline]] inline Floats store(f16* p, const Floats& x, N n) {
  Floats held;
  Floats::for_each([&](int i) {
    const __m256i halves = detail::narrow_f16(x.r[i]);
    if constexpr (std::is_same_v<N, Whole>)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16 * i), halves);
    else
      _mm256_mask_storeu_epi16(p + 16 * i, detail::mask_16(n, i), halves);
    held.r[i] = detail::widen_f16(halves);
  });
  return held;
}

/// The lower and the upper half of a register in double.
inline Floats::Doubles lower(Floats::Register x) {
  return _mm512_maskz_cvtps_pd(0xff, std::bit_cast<detail::FloatHalves>(x).low);
}
inline Floats::Doubles upper(Floats::Register x) {
  return _mm512_maskz_cvtps_pd(0xff, std::bit_cast<detail::FloatHalves>(x).high);
}

/// Brings a zipped strip to the order of memory.
inline Floats unzip(const Floats& x) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                high =
                    _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  Floats result;
  for (int i = 0; i < 4; i += 2) {
    result.r[i] = _mm512_permutex2var_ps(x.r[i], low, x.r[i + 1]);
    result.r[i + 1] = _mm512_permutex2var_ps(x.r[i], high, x.r[i + 1]);
  }
  return result;
}

namespace detail {

// g++ 12 makes two instructions of a < b ? a : b if one is a constant.
inline Register least(Register x, Register y) { return _mm512_maskz_min_ps(0xffff, x, y); }
inline Register greatest(Register x, Register y) { return _mm512_maskz_max_ps(0xffff, x, y); }
inline Register times_power(Register x, Register n) { return _mm512_maskz_scalef_ps(0xffff, x, n); }
inline Register square_root(Register x) { return _mm512_maskz_sqrt_ps(0xffff, x); }

}  // namespace detail

/// Whether multiplying pairs of bf16 is faster than multiplying them as floats.
constexpr bool kDotProducts = true;

using BlockProduct = void;

/// sum += left.first · right.first + left.second · right.second on each float of a register; each
/// float of left and right holds a pair of bf16, and `left` is the same for all. Assembly, because
/// with the intrinsic g++ 12 sees a change of type and copies every sum to memory each time.
inline void add_product(Floats::Register& sum, float left, const Floats::Register& right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(Floats::Register(_mm512_set1_ps(left))), "v"(right));
}

/// add_product() with a `left` that differs from float to float.
inline void add_pair_products(Floats::Register& sum, const Floats::Register& left,
                              const Floats::Register& right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
}

/// add_pair_products() of pairs of f16; the two products of a float belong to different pairs.
inline void add_f16_products(Floats::Register& sum, const Floats::Register& left,
                             const Floats::Register& right) {
  const auto a = std::bit_cast<detail::IntegerHalves>(left),
             b = std::bit_cast<detail::IntegerHalves>(right);
  sum += detail::widen_f16(a.low) * detail::widen_f16(b.low);
  sum += detail::widen_f16(a.high) * detail::widen_f16(b.high);
}

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
inline void pair_16(float* to, const float* first, const float* second) {
  using Words = std::uint32_t __attribute__((vector_size(64)));
  constexpr Words kLow{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto zipped = reinterpret_cast<__m512i>(kLow | (kLow + 16) << 16);
  const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
  _mm512_storeu_si512(
      to, _mm512_maskz_permutexvar_epi16(~0u, zipped, reinterpret_cast<__m512i>(halves)));
}

/// to[i] = the pair (first[i], second[i]), i below 16.
inline void pair_16(float* to, const bf16* first, const bf16* second) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first)),
                high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  const __m512i words =
      _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, high), 16);
  _mm512_storeu_si512(to, _mm512_or_si512(words, _mm512_maskz_cvtepu16_epi32(0xffff, low)));
}

}  // namespace axonn::cpu
