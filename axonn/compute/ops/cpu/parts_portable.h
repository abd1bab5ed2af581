#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "axonn/compute/ops/cpu/floats.h"

// The first elements of a register in memory, halves of 16 bits, and doubles. The build copies this
// file or parts_sve.h to axonn/compute/ops/cpu/parts.h.

namespace axonn::cpu {

namespace detail {

/// As many bf16 or f16 as a register has floats.
using Halves = Registers::HalfWords;

inline Registers::Words words_of(Halves halves) {
  return __builtin_convertvector(halves, Registers::Words);
}
/// The lower halves of words.
inline Halves halves_of(Registers::Words words) { return __builtin_convertvector(words, Halves); }

/// Both in a register, `first` in front. Not through memory: a load of what two stores wrote waits
/// for both.
inline Register joined(Halves first, Halves second) {
  return [&]<int... i>(std::integer_sequence<int, i...>) {
    return reinterpret_cast<Register>(__builtin_shufflevector(first, second, i...));
  }
  (std::make_integer_sequence<int, 2 * Registers::kEach>{});
}

/// Whether the functions below take any `count`: below 0 it is 0, above kEach it is kEach. Else
/// from 0 to kEach.
constexpr bool kMasksParts = false;

/// The first `count` elements from p in a register of type V; the rest is zero.
template <typename V>
[[gnu::always_inline]] inline V load_part(const void* p, int count, int element) {
  V v{};
  if (count > 0) std::memcpy(&v, p, static_cast<std::size_t>(count * element));
  return v;
}

[[gnu::always_inline]] inline Register load_floats(const float* p, auto count) {
  return load_part<Register>(p, count, sizeof *p);
}
[[gnu::always_inline]] inline Halves load_halves(const auto* p, auto count) {
  return load_part<Halves>(p, count, sizeof *p);
}

[[gnu::always_inline]] inline void store_floats(float* p, Register x, auto count) {
  if (count > 0) std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof *p);
}
[[gnu::always_inline]] inline void store_halves(auto* p, Halves halves, auto count) {
  if (count > 0) std::memcpy(p, &halves, static_cast<std::size_t>(count) * sizeof *p);
}

inline Registers::Doubles half(Register x, int which) {
  using Half = float __attribute__((vector_size(Registers::kBytes / 2)));
  struct Both {
    Half each[2];
  };
  return __builtin_convertvector(std::bit_cast<Both>(x).each[which], Registers::Doubles);
}

}  // namespace detail

inline Registers::Doubles lower(Registers::Register x) { return detail::half(x, 0); }
inline Registers::Doubles upper(Registers::Register x) { return detail::half(x, 1); }

}  // namespace axonn::cpu
