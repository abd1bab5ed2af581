#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace axonn::cpu {

constexpr int kLanes = 16;

constexpr int round_up(int count, int multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// A strip of 64 floats in registers, with the arithmetic of one float. Each operation goes through
/// the registers in turn, so that a long chain of dependent operations waits less for latencies.
/// The number is 64 whatever the width of registers, so that no bit of a sum depends on that width.
class Floats {
 public:
  static constexpr int kCount = 64;
  static constexpr int kBytes = __BIGGEST_ALIGNMENT__;
  static constexpr int kEach = kBytes / 4, kRegisters = kCount / kEach;
  using Register = float __attribute__((vector_size(kBytes), may_alias));
  using Unaligned = float __attribute__((vector_size(kBytes), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(kBytes), may_alias));
  using Words = std::uint32_t __attribute__((vector_size(kBytes), may_alias));

  Floats() : Floats(0.0f) {}
  /// All of them x.
  [[gnu::always_inline]] Floats(float x) {
    for_each([&](int i) { r[i] = x - Register{}; });
  }

  /// Applies f to each register.
  [[gnu::always_inline]] static Floats each(auto f, const auto&... x) {
    Floats result{Uninitialised{}};
    for_each([&](int i) { result.r[i] = f(x.r[i]...); });
    return result;
  }

  /// Calls f(i) for every register.
  [[gnu::always_inline]] static void for_each(auto f) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) f(i);
  }

  Register r[kRegisters];

 private:
  struct Uninitialised {};
  explicit Floats(Uninitialised) {}
};

/// Sixteen floats, in the registers that they take: one with AVX-512. Sums that are kept in so many
/// parts are the same to the bit whatever the width of registers.
struct Lanes {
  static constexpr int kRegisters = kLanes / Floats::kEach;
  Floats::Register r[kRegisters];

  /// Calls f(i) for every register.
  [[gnu::always_inline]] static void for_each(auto f) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) f(i);
  }
};

/// Transposes a square of as many rows as a register has floats: each pass zips two halves.
[[gnu::always_inline]] inline void transpose(Floats::Register (&rows)[Floats::kEach]) {
  constexpr int kEach = Floats::kEach, kHalf = kEach / 2;
  Floats::Words low, high;
  for (int i = 0; i < kEach; ++i) {
    low[i] = static_cast<std::uint32_t>(i / 2 + i % 2 * kEach);
    high[i] = low[i] + kHalf;
  }
#pragma GCC unroll 4
  for (int zipped = 1; zipped < kEach; zipped *= 2) {
    Floats::Register next[kEach];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + kHalf], low);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kHalf], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kEach; ++i) rows[i] = next[i];
  }
}

/// The vector registers that instructions can name: twice as many from AVX-512 on.
constexpr int kRegisterCount = Floats::kBytes == 64 ? 32 : 16;

[[gnu::always_inline]] inline Floats operator+(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a + b; }, x, y);
}
[[gnu::always_inline]] inline Floats operator-(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a - b; }, x, y);
}
[[gnu::always_inline]] inline Floats operator*(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a * b; }, x, y);
}
[[gnu::always_inline]] inline Floats operator/(const Floats& x, const Floats& y) {
  return Floats::each([](auto a, auto b) { return a / b; }, x, y);
}

// The functions of rowwise/math.h for Floats; the rest of them are in registers.h.

[[gnu::always_inline]] inline Floats quotient(const Floats& x, const Floats& y) { return x / y; }

[[gnu::always_inline]] inline Floats select_less(const Floats& x, const Floats& y,
                                                 const Floats& yes, const Floats& no) {
  return Floats::each([](auto a, auto b, auto u, auto v) { return a < b ? u : v; }, x, y, yes, no);
}
[[gnu::always_inline]] inline Floats square_root(const Floats& x) {
  return Floats::each(
      [](auto a) {
        for (int i = 0; i < Floats::kEach; ++i) a[i] = std::sqrt(a[i]);
        return a;
      },
      x);
}

/// 0, 1, 2 ...
[[gnu::always_inline]] inline Floats from_zero() {
  Floats::Register first;
  for (int i = 0; i < Floats::kEach; ++i) first[i] = static_cast<float>(i);
  Floats result;
  Floats::for_each([&](int i) { result.r[i] = first + static_cast<float>(i * Floats::kEach); });
  return result;
}

/// The first n elements of x, then `other`.
template <typename N>
[[gnu::always_inline]] inline Floats first_of(const Floats& x, N n, float other = 0) {
  if constexpr (!std::is_same_v<N, int>) return x;
  return select_less(from_zero(), static_cast<float>(n), x, other);
}

/// All elements combined by join(a, b): halves with halves, at last within a register.
[[gnu::always_inline]] inline float folded(const Floats& x, auto join) {
  using Sixteen = float __attribute__((vector_size(64), may_alias));
  using Index = std::int32_t __attribute__((vector_size(64)));
  alignas(64) float values[Floats::kCount];
  Floats::for_each([&](int i) {
    *reinterpret_cast<Floats::Register*>(values + std::ptrdiff_t{i} * Floats::kEach) = x.r[i];
  });
  const auto lanes = [&](int i) {
    return *reinterpret_cast<const Sixteen*>(values + std::ptrdiff_t{i} * kLanes);
  };
  Sixteen all = join(join(lanes(0), lanes(2)), join(lanes(1), lanes(3)));
  all = join(all, __builtin_shuffle(all, Index{8, 9, 10, 11, 12, 13, 14, 15}));
  all = join(all, __builtin_shuffle(all, Index{4, 5, 6, 7}));
  all = join(all, __builtin_shuffle(all, Index{2, 3}));
  return join(all, __builtin_shuffle(all, Index{1}))[0];
}

/// The sum of all elements.
[[gnu::always_inline]] inline float fold(const Floats& x) {
  return folded(x, [](const auto& a, const auto& b) { return a + b; });
}

/// The largest element.
inline float largest(const Floats& x) {
  return folded(x, [](const auto& a, const auto& b) { return a < b ? b : a; });
}

}  // namespace axonn::cpu
