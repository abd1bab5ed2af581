#pragma once

#include <algorithm>
#include <type_traits>

#include "axonn/compute/ops/cpu/arithmetic.h"
#include "axonn/compute/ops/cpu/bf16.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/parts.h"
#include "axonn/compute/tensor/dtype.h"

// Loads and stores of strips, arithmetic, and pairs of bf16 and f16, by what compilers make of
// vectors, and by arithmetic.h, bf16.h and parts.h. The build copies this file or
// registers_avx512.h, which describes the functions, to axonn/compute/ops/cpu/registers.h.

namespace axonn::cpu {

using Whole = std::integral_constant<int, Floats::kCount>;

enum class Order { memory, zipped };

namespace detail {

/// The floats of a register of bf16 or f16, T.
template <typename T>
inline Floats::Register widen(Halves halves) {
  if constexpr (std::is_same_v<T, f16>)
    return widen_f16(halves);
  else
    return widen_bf16(halves);
}

/// Rounds a register as put() rounds one bf16 or f16, T.
template <typename T>
inline Halves narrow(Floats::Register x) {
  if constexpr (std::is_same_v<T, f16>)
    return narrow_f16(x);
  else
    return narrow_bf16(x);
}
/// The same, one after another from the first byte on; twice.
template <typename T>
inline Floats::Register narrow_in_order(Floats::Register x) {
  return joined(narrow<T>(x), narrow<T>(x));
}

inline Floats::Register narrow_two(Floats::Register low, Floats::Register high) {
  return joined(narrow_bf16(low), narrow_bf16(high));
}

/// Calls f(i, begin, count) for each register of a strip of n elements from its first element on:
/// how many of its elements there are, as a constant if all.
template <typename N>
[[gnu::always_inline]] inline void for_parts(N n, auto f) {
  Floats::for_each([&](int i) {
    const int begin = i * Floats::kEach, count = n - begin;
    if (std::is_same_v<N, Whole> || (!kMasksParts && count >= Floats::kEach))
      f(i, begin, std::integral_constant<int, Floats::kEach>{});
    else
      f(i, begin, kMasksParts ? count : std::max(count, 0));
  });
}

}  // namespace detail

template <Order, typename N>
[[gnu::always_inline]] inline Floats load(const float* p, N n) {
  Floats x;
  detail::for_parts(
      n, [&](int i, int begin, auto count) { x.r[i] = detail::load_floats(p + begin, count); });
  return x;
}

/// From bf16 or f16.
template <Order, typename T, typename N>
[[gnu::always_inline]] inline Floats load(const T* p, N n) {
  Floats x;
  detail::for_parts(n, [&](int i, int begin, auto count) {
    x.r[i] = detail::widen<T>(detail::load_halves(p + begin, count));
  });
  return x;
}

/// A register of floats from as many bf16 or f16.
template <typename T>
[[gnu::always_inline]] inline Floats::Register load_register(const T* p) {
  return detail::widen<T>(detail::load_halves(p, std::integral_constant<int, Floats::kEach>{}));
}

template <Order, typename N>
[[gnu::always_inline]] inline Floats store(float* p, const Floats& x, N n) {
  detail::for_parts(
      n, [&](int i, int begin, auto count) { detail::store_floats(p + begin, x.r[i], count); });
  return x;
}

/// To bf16 or f16.
template <Order, typename T, typename N>
[[gnu::always_inline]] inline Floats store(T* p, const Floats& x, N n) {
  Floats held;
  detail::for_parts(n, [&](int i, int begin, auto count) {
    const detail::Halves halves = detail::narrow<T>(x.r[i]);
    detail::store_halves(p + begin, halves, count);
    held.r[i] = detail::widen<T>(halves);
  });
  return held;
}

inline Floats unzip(const Floats& x) { return x; }

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
template <typename T>
void pair_16(float* to, const T* first, const T* second) {
  constexpr std::integral_constant<int, Floats::kEach> kAll;
  const auto words = [&](const T* from) {
    if constexpr (std::is_same_v<T, float>)
      return detail::words_of(detail::narrow_bf16(detail::load_floats(from, kAll)));
    else
      return detail::words_of(detail::load_halves(from, kAll));
  };
  for (int i = 0; i < 16; i += Floats::kEach)
    *reinterpret_cast<Floats::Unaligned*>(to + i) =
        reinterpret_cast<Registers::Register>(words(first + i) | words(second + i) << 16);
}

}  // namespace axonn::cpu
