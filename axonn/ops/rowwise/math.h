#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "axonn/tensor/dtype.h"

namespace axonn::rowwise {

// Bodies of kernels that are long chains, each operation waiting for the one before, take values of
// any type V that has these functions and arithmetic: a float, or what a team computes side by
// side.

/// a < b ? yes : no
AXONN_DEVICE inline float select_less(float a, float b, float yes, float no) {
  return a < b ? yes : no;
}

/// a == b ? yes : no
AXONN_DEVICE inline float select_equal(float a, float b, float yes, float no) {
  return a == b ? yes : no;
}

/// x · 2^n where the low bits of `shifted` are n and the result is a normal number.
AXONN_DEVICE inline float times_power(float x, float shifted) {
  const std::uint32_t power = std::bit_cast<std::uint32_t>(shifted) << 23;  // other bits fall off
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + power);
}

AXONN_DEVICE inline float square_root(float x) { return std::sqrt(x); }

/// e to the x, branch-free, so that every compiler vectorises it.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by a polynomial of degree 6 whose own relative
/// error is 1e-8; the result is within 2e-7 of e^x. Below 2^-126 it is 0; above 88 it stays at
/// e^88, and a NaN stays one.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V exponential(V x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it rounds to an integer in the low bits
  constexpr float kMost = 88, kLeast = -87.33654f;  // ln of 2^-126
  const V most = select_less(kMost, x, kMost, x);
  const V shifted = most * kLog2E + kRound, n = shifted - kRound;
  const V r = (most - n * kLn2High) - n * kLn2Low;
  V p = r * 1.39262135e-3f + 8.36320297e-3f;
  p = p * r + 4.16665544e-2f;
  p = p * r + 1.66665769e-1f;
  p = p * r + 5.0000000e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return select_less(x, kLeast, 0.0f, times_power(p, shifted));
}

/// 1 / (1 + e^-x), within 3e-7.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V sigmoid(V x) {
  return 1.0f / (1.0f + exponential(0.0f - x));
}

}  // namespace axonn::rowwise
