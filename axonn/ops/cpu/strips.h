#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/tensor/dtype.h"

namespace axonn::cpu {

/// Elements that a Team works on at a time, as floats: four of the widest registers, which hides an
/// addition's latency. A number of its own, so that no bit of a sum depends on how wide registers
/// are.
constexpr int kStrip = 64;

namespace detail {

// A register of halves and the two of words that it becomes, which is what g++ has one instruction
// each for.
constexpr int kWide = 32;
using Words = std::uint32_t __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
using Register = std::uint32_t __attribute__((vector_size(2 * kWide), aligned(4), may_alias));
using Halves = std::uint16_t __attribute__((vector_size(2 * kWide), aligned(2), may_alias));

/// Where a strip of T is as floats: itself, or a copy. g++ turns a loop over bf16 and floats into
/// many shuffles of halves of registers; with the types in loops of their own it does not.
template <typename T>
struct Source {
  const float* load(const float* p, int) { return p; }
};

template <>
struct Source<bf16> {
  alignas(64) float copy[kStrip];

  const float* load(const bf16* p, int count) {
    if (count < kStrip) {
      for (int i = 0; i < count; ++i) copy[i] = get(p[i]);
    } else {
#pragma GCC unroll 2
      for (int i = 0; i < kStrip; i += kWide)
        *reinterpret_cast<Words*>(copy + i) =
            __builtin_convertvector(*reinterpret_cast<const Halves*>(p + i), Words) << 16;
    }
    return copy;
  }
};

/// Where a strip is written as floats, until store() makes it T.
template <typename T>
struct Target {
  static float* floats(float* p) { return p; }
  static void store(float*, int) {}
};

template <>
struct Target<bf16> {
  alignas(64) float copy[kStrip];

  float* floats(bf16*) { return copy; }
  void store(bf16* p, int count) {
    if (count < kStrip) {
      for (int i = 0; i < count; ++i) put(p[i], copy[i]);
      return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < kStrip; i += kWide / 2) {  // put(), on 16 at once
      const Register bits = *reinterpret_cast<const Register*>(copy + i);
      const Register rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      *reinterpret_cast<Register*>(copy + i) =
          (bits << 1) > 0xff000000u ? (bits >> 16) | 0x40 : rounded;
    }
#pragma GCC unroll 2
    for (int i = 0; i < kStrip; i += kWide)
      *reinterpret_cast<Halves*>(p + i) =
          __builtin_convertvector(*reinterpret_cast<const Words*>(copy + i), Halves);
  }
};

}  // namespace detail

/// f(begin, count, x...) for every strip of [0, count), x pointing to `count` floats of each `in`;
/// `count` is a constant for all but the last strip.
template <typename F, typename... In>
inline void for_strips_of(int count, F f, const In*... in) {
  int i = 0;
  for (; i + kStrip <= count; i += kStrip)
    f(i, std::integral_constant<int, kStrip>{}, detail::Source<In>().load(in + i, kStrip)...);
  if (i < count) f(i, count - i, detail::Source<In>().load(in + i, count - i)...);
}

}  // namespace axonn::cpu
