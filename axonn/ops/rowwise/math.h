#pragma once

#include <bit>
#include <cstdint>

#include "axonn/tensor/dtype.h"

namespace axonn::rowwise {

/// e to the x, branch-free, so that every compiler vectorises it.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by a polynomial of degree 6 whose own relative
/// error is 1e-8; the result is within 2e-7 of e^x. Where n is below -126, as it is for any x below
/// -87.7, it is 0; above 88 it stays at e^88, and a NaN stays one.
AXONN_DEVICE inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it rounds to an integer in the low bits
  constexpr std::int32_t kRoundBits = 0x4b400000, kBias = 127;
  const float below = x > 88.0f ? 88.0f : x;
  const float clamped = below < -100.0f ? -100.0f : below;
  const float shifted = clamped * kLog2E + kRound, n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.39262135e-3f;
  p = p * r + 8.36320297e-3f;
  p = p * r + 4.16665544e-2f;
  p = p * r + 1.66665769e-1f;
  p = p * r + 5.0000000e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - (kRoundBits - kBias);
  const std::int32_t power = (exponent > 0 ? exponent : 0) << 23;  // 2^n, or 0
  return p * std::bit_cast<float>(power);
}

/// 1 / (1 + e^-x), within 3e-7.
AXONN_DEVICE inline float sigmoid(float x) { return 1 / (1 + exponential(-x)); }

}  // namespace axonn::rowwise
