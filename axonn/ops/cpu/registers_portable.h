#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/tensor/dtype.h"

// Strips from memory and to it, and arithmetic, where the processor has no instructions for bf16;
// the build takes this file or registers_avx512.h, which says what these functions do, for
// axonn/ops/cpu/registers.h.

namespace axonn::cpu {

using Whole = std::integral_constant<int, Floats::kCount>;

enum class Order { memory, zipped };

template <Order order, typename N>
[[gnu::always_inline]] inline Floats load(const float* p, N n) {
  if constexpr (std::is_same_v<N, Whole>) {
    Floats x;
    Floats::for_each([&](int i) {
      x.r[i] = *reinterpret_cast<const Floats::Unaligned*>(p + std::ptrdiff_t{i} * Floats::kEach);
    });
    return x;
  } else {
    alignas(64) float padded[Floats::kCount] = {};
    std::copy_n(p, n, padded);
    return load<order>(padded, Whole{});
  }
}

template <Order order, typename N>
[[gnu::always_inline]] inline Floats load(const bf16* p, N n) {
  alignas(64) float wide[Floats::kCount] = {};
#pragma omp simd
  for (int i = 0; i < n; ++i) wide[i] = get(p[i]);
  return load<order>(wide, Whole{});
}

template <Order order, typename N>
[[gnu::always_inline]] inline Floats store(float* p, const Floats& x, N n) {
  if constexpr (std::is_same_v<N, Whole>) {
    Floats::for_each([&](int i) {
      *reinterpret_cast<Floats::Unaligned*>(p + std::ptrdiff_t{i} * Floats::kEach) = x.r[i];
    });
  } else {
    alignas(64) float padded[Floats::kCount];
    store<order>(padded, x, Whole{});
    std::copy_n(padded, n, p);
  }
  return x;
}

template <Order order, typename N>
[[gnu::always_inline]] inline Floats store(bf16* p, const Floats& x, N n) {
  alignas(64) float wide[Floats::kCount];
  store<order>(wide, x, Whole{});
#pragma omp simd
  for (int i = 0; i < n; ++i) put(p[i], wide[i]);
  return load<order>(p, n);
}

namespace detail {

inline Floats::Doubles half(Floats::Register x, int which) {
  using Half = float __attribute__((vector_size(Floats::kBytes / 2)));
  struct Halves {
    Half each[2];
  };
  return __builtin_convertvector(std::bit_cast<Halves>(x).each[which], Floats::Doubles);
}

}  // namespace detail

inline Floats::Doubles lower(Floats::Register x) { return detail::half(x, 0); }
inline Floats::Doubles upper(Floats::Register x) { return detail::half(x, 1); }

inline Floats unzip(const Floats& x) { return x; }

[[gnu::always_inline]] inline Floats least(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a < b ? a : b; }, x, y);
}
[[gnu::always_inline]] inline Floats greatest(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a > b ? a : b; }, x, y);
}
[[gnu::always_inline]] inline Floats times_power(const Floats& x, const Floats& n) {
  using Integers = Floats::Integers;
  const Floats scaled = Floats::each(
      [](auto a, auto shifted) {
        return reinterpret_cast<Floats::Register>(reinterpret_cast<Integers>(a) +
                                                  (reinterpret_cast<Integers>(shifted) << 23));
      },
      x, least(127.0f, n) + rowwise::kRound);
  return select_less(n, -126.0f, 0.0f, scaled);
}

}  // namespace axonn::cpu
