#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/cpu/architecture.h"

namespace axonn::cpu {

constexpr int kLanes = 16;

constexpr int round_up(int count, int multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// A register of this set of instructions, and what instructions make of its bits.
struct Registers {
  static constexpr int kBytes = kRegisterBytes, kEach = kBytes / 4;
  /// That instructions can name: on x86-64 twice as many from AVX-512 on.
  static constexpr int kCount = kArm64 || kBytes == 64 ? 32 : 16;
  using Register = float __attribute__((vector_size(kBytes), may_alias));
  using Unaligned = float __attribute__((vector_size(kBytes), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(kBytes), may_alias));
  using Words = std::uint32_t __attribute__((vector_size(kBytes), may_alias));
  using HalfWords = std::uint16_t __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));
};

namespace detail {

// The functions of rowwise/math.h that have special instructions, on one register; in registers.h.
using Register = Registers::Register;
inline Register least(Register x, Register y);
inline Register greatest(Register x, Register y);
inline Register times_power(Register x, Register n);
inline Register square_root(Register x);

}  // namespace detail

/// Floats in registers, with the arithmetic of one float and the functions of rowwise/math.h. Each
/// operation goes through the registers in turn, so that a long chain of dependent operations waits
/// less for latencies.
template <int kRegisters_>
class FloatStrip : public Registers {
 public:
  static constexpr int kRegisters = kRegisters_, kCount = kRegisters * kEach;

  FloatStrip() : FloatStrip(0.0f) {}
  /// All of them x.
  [[gnu::always_inline]] FloatStrip(float x) {
    for_each([&](int i) { r[i] = x - Register{}; });
  }

  [[gnu::always_inline]] static FloatStrip from(const float* p) {
    FloatStrip x{Uninitialised{}};
    for_each([&](int i) { x.r[i] = *reinterpret_cast<const Unaligned*>(p + i * kEach); });
    return x;
  }
  [[gnu::always_inline]] void to(float* p) const {
    for_each([&](int i) { *reinterpret_cast<Unaligned*>(p + i * kEach) = r[i]; });
  }

  /// Applies f to each register.
  [[gnu::always_inline]] static FloatStrip each(auto f, const auto&... x) {
    FloatStrip result{Uninitialised{}};
    for_each([&](int i) { result.r[i] = f(x.r[i]...); });
    return result;
  }

  /// Calls f(i) for every register.
  [[gnu::always_inline]] static void for_each(auto f) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) f(i);
  }

  /// The strip that consists of register i.
  [[gnu::always_inline]] FloatStrip<1> part(int i) const {
    FloatStrip<1> one;
    one.r[0] = r[i];
    return one;
  }

  [[gnu::always_inline]] friend FloatStrip operator+(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return a + b; }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip operator-(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return a - b; }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip operator*(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return a * b; }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip operator/(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return a / b; }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip quotient(const FloatStrip& x, const FloatStrip& y) {
    return x / y;
  }
  [[gnu::always_inline]] friend FloatStrip select_less(const FloatStrip& x, const FloatStrip& y,
                                                       const FloatStrip& yes,
                                                       const FloatStrip& no) {
    return each([](auto a, auto b, auto u, auto v) { return a < b ? u : v; }, x, y, yes, no);
  }
  [[gnu::always_inline]] friend FloatStrip square_root(const FloatStrip& x) {
    return each([](auto a) { return detail::square_root(a); }, x);
  }
  [[gnu::always_inline]] friend FloatStrip least(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return detail::least(a, b); }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip greatest(const FloatStrip& x, const FloatStrip& y) {
    return each([](auto a, auto b) { return detail::greatest(a, b); }, x, y);
  }
  [[gnu::always_inline]] friend FloatStrip times_power(const FloatStrip& x, const FloatStrip& n) {
    return each([](auto a, auto b) { return detail::times_power(a, b); }, x, n);
  }

  Register r[kRegisters];

 private:
  struct Uninitialised {};
  explicit FloatStrip(Uninitialised) {}
};

/// 64 floats. The number is the same whatever the width of registers, so that no bit of a sum
/// depends on that width.
using Floats = FloatStrip<64 / Registers::kEach>;

/// Sixteen floats, in the registers that they take: one with AVX-512. Sums that are kept in so many
/// parts are the same to the bit whatever the width of registers. Not a FloatStrip: g++ 12 keeps
/// arrays of those in memory where bf16 is multiplied by assembly (registers_avx512.h).
struct Lanes {
  static constexpr int kEach = Floats::kEach, kRegisters = kLanes / kEach;
  Floats::Register r[kRegisters];

  /// Calls f(i) for every register.
  [[gnu::always_inline]] static void for_each(auto f) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) f(i);
  }
};

/// Transposes a square of as many rows as a register has floats: each pass zips two halves, as ARM
/// does by one instruction.
[[gnu::always_inline]] inline void transpose_by_zips(Floats::Register (&rows)[Floats::kEach]) {
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

/// Replaces rows i and i + stride of each pair by two mixtures: word w of the first is that of
/// number from(0, w) of both, of the second from(1, w).
[[gnu::always_inline]] inline void mix_rows(Floats::Register (&rows)[Floats::kEach], int stride,
                                            auto from) {
  constexpr int kEach = Floats::kEach;
  Floats::Words first, second;
  for (int w = 0; w < kEach; ++w) {
    first[w] = static_cast<std::uint32_t>(from(0, w));
    second[w] = static_cast<std::uint32_t>(from(1, w));
  }
#pragma GCC unroll 16
  for (int i = 0; i < kEach; ++i)
    if (i / stride % 2 == 0) {
      const Floats::Register x = rows[i], y = rows[i + stride];
      rows[i] = __builtin_shuffle(x, y, first);
      rows[i + stride] = __builtin_shuffle(x, y, second);
    }
}

/// Transposes a square of as many rows as a register has floats: words within 128 bits, by
/// instructions that overwrite no operand, then these parts.
[[gnu::always_inline]] inline void transpose(Floats::Register (&rows)[Floats::kEach]) {
  if constexpr (kArm64) return transpose_by_zips(rows);
  constexpr int kEach = Floats::kEach, kParts = kEach / 4, kHalf = kParts > 1 ? kParts / 2 : 1;
  const auto word = [](int part, int w, int of) { return part * 4 + w + of * kEach; };
  mix_rows(rows, 1, [&](int i, int w) { return word(w / 4, 2 * i + w % 4 / 2, w % 2); });
  mix_rows(rows, 2, [&](int i, int w) { return word(w / 4, 2 * i + w % 2, w % 4 / 2); });
  if constexpr (kParts > 1)
    mix_rows(rows, 4,
             [&](int i, int w) { return word(i * kHalf + w / 4 % kHalf, w % 4, w / 4 / kHalf); });
  if constexpr (kParts > 2)
    mix_rows(rows, 8, [&](int i, int w) { return word(w / 4 % 2 * 2 + i, w % 4, w / 8); });
  // The middle two of each four are the other way round, of rows and of fours of rows.
  const auto turned = [](int i) { return i % 2 * 2 + i / 2; };
  Floats::Register all[kEach];
#pragma GCC unroll 16
  for (int i = 0; i < kEach; ++i)
    all[i] = rows[(kParts > 2 ? turned(i / 4) : i / 4) * 4 + turned(i % 4)];
#pragma GCC unroll 16
  for (int i = 0; i < kEach; ++i) rows[i] = all[i];
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
