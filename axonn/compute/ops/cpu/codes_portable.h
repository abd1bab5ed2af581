#pragma once

#include <array>
#include <cstdint>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/tensor/quantization.h"

// Registers of floats from codes, without instructions for them. The build copies this file or that
// of a set of instructions to axonn/compute/ops/cpu/codes.h.

namespace axonn::cpu {

namespace detail {

/// Registers::kEach signed bytes as floats.
[[gnu::always_inline]] inline Registers::Register from_bytes(const std::uint8_t* codes) {
  Registers::Register x;
  for (int i = 0; i < Registers::kEach; ++i) x[i] = static_cast<std::int8_t>(codes[i]);
  return x;
}

/// values[code] of the codes in the lower or higher halves of Registers::kEach bytes.
[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, bool higher, const std::array<float, 16>& values) {
  Registers::Register x;
  for (int i = 0; i < Registers::kEach; ++i) x[i] = values[(codes[i] >> (higher ? 4 : 0)) & 15];
  return x;
}

/// x, plus a number where the bit of an element is set: those of Registers::kEach bits, from bit
/// `first` of a byte on.
[[gnu::always_inline]] inline Registers::Register plus_if_set(Registers::Register x,
                                                              const std::uint8_t* bits, int first,
                                                              float number) {
  for (int i = 0; i < Registers::kEach; ++i)
    if ((bits[(first + i) / 8] >> (first + i) % 8 & 1) != 0) x[i] += number;
  return x;
}

/// An f16 that lies anywhere.
inline float from_f16(const std::uint8_t* bytes) { return half_at(bytes); }
/// Four of them, so many bytes apart.
inline void four_f16(const std::uint8_t* first, int apart, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = from_f16(first + i * apart);
}

}  // namespace detail

}  // namespace axonn::cpu
