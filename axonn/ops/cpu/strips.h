#pragma once

#include <algorithm>
#include <type_traits>

#include "axonn/ops/cpu/bf16.h"

namespace axonn::cpu {

/// Elements that a Team works on at a time, as floats: four of the widest registers, which hides an
/// addition's latency. A number of its own, so that no bit of a sum depends on how wide registers
/// are.
constexpr int kStrip = 64;

namespace detail {

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
#pragma GCC unroll 4
      for (int i = 0; i < kStrip; i += 16) widen_16(copy + i, p + i);
    }
    return copy;
  }
};

/// A part of a strip, and zeros behind it.
struct Padded {
  alignas(64) float values[kStrip] = {};

  Padded(const float* x, int count) { std::copy_n(x, count, values); }
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
    if (count == kStrip) return round(p);
    alignas(64) bf16 rounded[kStrip];  // by the same instructions, so that no bit depends on place
    std::fill(copy + count, copy + kStrip, 0.0f);
    round(rounded);
    std::copy_n(rounded, count, p);
  }

 private:
  void round(bf16* p) const {
#pragma GCC unroll 2
    for (int i = 0; i < kStrip; i += 32) narrow_32(p + i, copy + i);
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
