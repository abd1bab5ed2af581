#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "axonn/compute/ops/cpu/arithmetic.h"
#include "axonn/compute/ops/cpu/bf16.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/tensor/dtype.h"

// Loads and stores of strips, arithmetic, and pairs of bf16 and f16, by what compilers make of
// vectors, and by arithmetic.h and bf16.h. The build copies this file or registers_avx512.h, which
// describes the functions, to axonn/compute/ops/cpu/registers.h.

namespace axonn::cpu {

using Whole = std::integral_constant<int, Floats::kCount>;

enum class Order { memory, zipped };

namespace detail {

using HalfWords = Registers::HalfWords;

/// The floats of a register of bf16 or f16, T.
template <typename T>
inline Floats::Register widen(HalfWords halves) {
  if constexpr (std::is_same_v<T, f16>)
    return widen_f16(halves);
  else
    return widen_bf16(halves);
}

/// Rounds a register as put() rounds one bf16 or f16, T.
template <typename T>
inline HalfWords narrow(Floats::Register x) {
  if constexpr (std::is_same_v<T, f16>)
    return narrow_f16(x);
  else
    return narrow_bf16(x);
}

inline Floats::Register narrow_two(Floats::Register low, Floats::Register high) {
  struct Halves {
    HalfWords each[2];
  };
  return std::bit_cast<Floats::Register>(Halves{{narrow_bf16(low), narrow_bf16(high)}});
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

/// to[i] = the pair (first[i], second[i]), i below 16, rounded.
template <typename T>
void pair_16(float* to, const T* first, const T* second) {
  using Words = Registers::Words;
  const auto halves = [](const T* from) {
    if constexpr (std::is_same_v<T, float>)
      return detail::narrow_bf16(*reinterpret_cast<const Floats::Unaligned*>(from));
    else
      return *reinterpret_cast<const detail::HalfWords*>(from);
  };
  for (int i = 0; i < 16; i += Floats::kEach) {
    const Words low = __builtin_convertvector(halves(first + i), Words),
                high = __builtin_convertvector(halves(second + i), Words);
    *reinterpret_cast<Floats::Unaligned*>(to + i) =
        reinterpret_cast<Registers::Register>(low | high << 16);
  }
}

}  // namespace axonn::cpu
