#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/dtype.h"

// Loads and stores of strips, arithmetic, and pairs of bf16 and f16, on processors without bf16
// instructions. The build copies this file or registers_avx512.h, which describes the functions, to
// axonn/compute/ops/cpu/registers.h.

namespace axonn::cpu {

using Whole = std::integral_constant<int, Floats::kCount>;

enum class Order { memory, zipped };

namespace detail {

using Words = Registers::Words;
using HalfWords =
    std::uint16_t __attribute__((vector_size(Floats::kBytes / 2), aligned(2), may_alias));

struct AddToWords {
  Words operator()(Words words, float x) const {
    return reinterpret_cast<Words>(reinterpret_cast<Floats::Register>(words) + x);
  }
};
inline Floats::Register widen_f16(Words halves) {
  return reinterpret_cast<Floats::Register>(widened_f16(halves, AddToWords{}));
}

/// The floats of a register of bf16 or f16, T.
template <typename T>
inline Floats::Register widen(HalfWords halves) {
  const Words words = __builtin_convertvector(halves, Words);
  if constexpr (std::is_same_v<T, f16>)
    return widen_f16(words);
  else
    return reinterpret_cast<Floats::Register>(words << 16);
}

/// Rounds a register as put() rounds one bf16 or f16, T.
template <typename T>
inline HalfWords narrow(Floats::Register x) {
  const auto bits = reinterpret_cast<Words>(x);
  if constexpr (std::is_same_v<T, f16>)
    return __builtin_convertvector(narrowed_f16(bits, AddToWords{}), HalfWords);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, nan = (bits >> 16) | 0x40;
  return __builtin_convertvector(x == x ? rounded : nan, HalfWords);
}

/// Calls f(i, begin, count) for each register of a strip of n elements from its first element on:
/// how many of its elements there are, as a constant if all.
template <typename N>
[[gnu::always_inline]] inline void for_parts(N n, auto f) {
  Floats::for_each([&](int i) {
    const int begin = i * Floats::kEach, count = n - begin;
    if (std::is_same_v<N, Whole> || count >= Floats::kEach)
      f(i, begin, std::integral_constant<int, Floats::kEach>{});
    else
      f(i, begin, std::max(count, 0));
  });
}

/// The first `count` elements from p in a register of type V; the rest is zero.
template <typename V>
[[gnu::always_inline]] inline V load_part(const void* p, int count, int element) {
  V v{};
  if (count > 0) std::memcpy(&v, p, static_cast<std::size_t>(count * element));
  return v;
}

inline Floats::Doubles half(Floats::Register x, int which) {
  using Half = float __attribute__((vector_size(Floats::kBytes / 2)));
  struct Halves {
    Half each[2];
  };
  return __builtin_convertvector(std::bit_cast<Halves>(x).each[which], Floats::Doubles);
}

}  // namespace detail

template <Order, typename N>
[[gnu::always_inline]] inline Floats load(const float* p, N n) {
  Floats x;
  detail::for_parts(n, [&](int i, int begin, auto count) {
    x.r[i] = detail::load_part<Floats::Register>(p + begin, count, sizeof *p);
  });
  return x;
}

/// From bf16 or f16.
template <Order, typename T, typename N>
[[gnu::always_inline]] inline Floats load(const T* p, N n) {
  Floats x;
  detail::for_parts(n, [&](int i, int begin, auto count) {
    x.r[i] = detail::widen<T>(detail::load_part<detail::HalfWords>(p + begin, count, sizeof *p));
  });
  return x;
}

/// A register of floats from as many f16.
[[gnu::always_inline]] inline Floats::Register load_register(const f16* p) {
  return detail::widen<f16>(detail::load_part<detail::HalfWords>(p, Floats::kEach, sizeof *p));
}

template <Order, typename N>
[[gnu::always_inline]] inline Floats store(float* p, const Floats& x, N n) {
  detail::for_parts(n, [&](int i, int begin, auto count) {
    if (count > 0) std::memcpy(p + begin, &x.r[i], static_cast<std::size_t>(count) * sizeof *p);
  });
  return x;
}

/// To bf16 or f16.
template <Order, typename T, typename N>
[[gnu::always_inline]] inline Floats store(T* p, const Floats& x, N n) {
  Floats held;
  detail::for_parts(n, [&](int i, int begin, auto count) {
    const detail::HalfWords halves = detail::narrow<T>(x.r[i]);
    if (count > 0) std::memcpy(p + begin, &halves, static_cast<std::size_t>(count) * sizeof *p);
    held.r[i] = detail::widen<T>(halves);
  });
  return held;
}

inline Floats::Doubles lower(Floats::Register x) { return detail::half(x, 0); }
inline Floats::Doubles upper(Floats::Register x) { return detail::half(x, 1); }

inline Floats unzip(const Floats& x) { return x; }

namespace detail {

inline Register least(Register x, Register y) { return x < y ? x : y; }
inline Register greatest(Register x, Register y) { return x > y ? x : y; }
inline Register times_power(Register x, Register n) {
  // Unsigned: of n below -126, whose results are not taken, the sum may wrap around.
  const Register shifted = least(127.0f - Register{}, n) + rowwise::kRound;
  const Register scaled = reinterpret_cast<Register>(reinterpret_cast<Words>(x) +
                                                     (reinterpret_cast<Words>(shifted) << 23));
  return n < -126.0f ? Register{} : scaled;
}

}  // namespace detail

/// Whether multiplying pairs of bf16 is faster than multiplying them as floats.
constexpr bool kDotProducts = false;

/// sum += left.first · right.first + left.second · right.second on each float of a register; each
/// float of left and right holds a pair of bf16.
[[gnu::always_inline]] inline void add_pair_products(Floats::Register& sum,
                                                     const Floats::Register& left,
                                                     const Floats::Register& right) {
  using Register = Floats::Register;
  using Words = Registers::Words;
  const auto a = reinterpret_cast<Words>(left), b = reinterpret_cast<Words>(right);
  sum += reinterpret_cast<Register>(a << 16) * reinterpret_cast<Register>(b << 16);
  sum += reinterpret_cast<Register>(a & 0xffff0000u) * reinterpret_cast<Register>(b & 0xffff0000u);
}

/// add_pair_products() of pairs of f16.
[[gnu::always_inline]] inline void add_f16_products(Floats::Register& sum,
                                                    const Floats::Register& left,
                                                    const Floats::Register& right) {
  using Words = Registers::Words;
  const auto a = reinterpret_cast<Words>(left), b = reinterpret_cast<Words>(right);
  sum += detail::widen_f16(a & 0xffffu) * detail::widen_f16(b & 0xffffu);
  sum += detail::widen_f16(a >> 16) * detail::widen_f16(b >> 16);
}

/// add_pair_products() with one `left` for all floats.
[[gnu::always_inline]] inline void add_product(Floats::Register& sum, float left,
                                               const Floats::Register& right) {
  add_pair_products(sum, left - Floats::Register{}, right);
}

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
template <typename T>
void pair_16(float* to, const T* first, const T* second) {
  for (int i = 0; i < 16; ++i) {
    bf16 a, b;
    put(a, get(first[i]));
    put(b, get(second[i]));
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16 | a.bits);
  }
}

}  // namespace axonn::cpu
