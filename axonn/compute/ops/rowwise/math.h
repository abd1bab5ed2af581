#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/tensor/dtype.h"

namespace axonn::rowwise {

// Kernel bodies that are long chains of dependent operations take values of any type V that has
// arithmetic and these functions: a float, or the floats that a team computes side by side.

/// The smaller and the larger of the two; b if either is NaN.
AXONN_DEVICE inline float least(float a, float b) { return a < b ? a : b; }
AXONN_DEVICE inline float greatest(float a, float b) { return a > b ? a : b; }

/// a < b ? yes : no
AXONN_DEVICE inline float select_less(float a, float b, float yes, float no) {
  return a < b ? yes : no;
}

constexpr float kLog2E = 1.44269504f;
constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it rounds to an integer in the low bits

/// x · 2^n for x from 1/2 to 2 and an integer n; NaN if both are NaN. Results below 2^-126 are 0 or
/// have few digits; those above 2^127 are about 2^127 or infinite.
AXONN_DEVICE inline float times_power(float x, float n) {
  const float shifted = least(127.0f, n) + kRound;
  const std::uint32_t power = std::bit_cast<std::uint32_t>(shifted) << 23;  // other bits fall off
  return select_less(n, -126.0f, 0.0f,
                     std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + power));
}

AXONN_DEVICE inline float square_root(float x) { return std::sqrt(x); }

/// a / b. On GPUs within 2 units in the last place, and 0 if b is from 2^126 to 2^128: an exact
/// division is twelve instructions and a branch.
AXONN_DEVICE inline float quotient(float a, float b) {
#if AXONN_GPU_CODE
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

/// a / b and a % b of the number of a row, or of another number that is not negative, below 2^31 on
/// GPUs. There it is a division of 32 bits: one of 64 bits is a subroutine of a hundred cycles.
AXONN_DEVICE inline std::int64_t row_quotient(std::int64_t a, std::int64_t b) {
  if constexpr (AXONN_GPU_CODE)
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}
AXONN_DEVICE inline std::int64_t row_remainder(std::int64_t a, std::int64_t b) {
  if constexpr (AXONN_GPU_CODE)
    return static_cast<std::uint32_t>(a) % static_cast<std::uint32_t>(b);
  return a % b;
}

/// e to the x, branch-free, so that every compiler vectorises it.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by a polynomial of degree 5 whose own relative
/// error is 1e-7; the result's relative error is at most 2e-7. Results below 2^-126 have few
/// correct digits, those below 2^-150 are 0. For finite x above 88 it is e^88 or more, for NaN it
/// is NaN; for +infinity a float's result is finite but meaningless.
///
/// On GPUs it is expf: eight instructions, within 2 units in the last place for every x.
/// Source: CUDA C++ Programming Guide, "Mathematical Functions".
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V exponential(V x) {
  if constexpr (AXONN_GPU_CODE && std::is_same_v<V, float>) return std::exp(x);
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const V within = greatest(-105.0f, x), n = (within * kLog2E + kRound) - kRound;
  const V r = (within - n * kLn2High) - n * kLn2Low;
  V p = r * 8.29032622e-3f + 4.18979302e-2f;
  p = p * r + 1.66676357e-1f;
  p = p * r + 4.99991506e-1f;
  p = p * r + 9.99999702e-1f;
  p = p * r + 1.0f;
  return times_power(p, n);
}

/// 2 to the x, with the accuracy of exponential(), for x that is not infinite. On GPUs it is exp2f:
/// four instructions, within 2 units in the last place for every x.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V power_of_two(V x) {
  if constexpr (AXONN_GPU_CODE && std::is_same_v<V, float>) return std::exp2(x);
  const V n = (x + kRound) - kRound, r = x - n;
  V p = r * 1.32647459e-3f + 9.67149809e-3f;
  p = p * r + 5.55072166e-2f;
  p = p * r + 2.40222439e-1f;
  p = p * r + 6.93147004e-1f;
  p = p * r + 1.0f;
  return times_power(p, n);
}

/// 1 / (1 + e^-x), within 3e-7.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V sigmoid(V x) {
  return quotient(1.0f, 1.0f + exponential(0.0f - x));
}

}  // namespace axonn::rowwise
