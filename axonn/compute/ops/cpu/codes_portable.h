#pragma once

#include <array>
#include <cstdint>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/tensor/dtype.h"
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

/// Every other one of 2 · Registers::kEach signed bytes as floats, and those between.
[[gnu::always_inline]] inline void pairs_from_bytes(const std::uint8_t* codes,
                                                    Registers::Register& even,
                                                    Registers::Register& odd) {
  for (int i = 0; i < Registers::kEach; ++i) {
    even[i] = static_cast<std::int8_t>(codes[2 * i]);
    odd[i] = static_cast<std::int8_t>(codes[2 * i + 1]);
  }
}

/// values[code] of Registers::kEach codes of 4 bits, the first of two in the higher ones.
[[gnu::always_inline]] inline Registers::Register from_half_bytes(
    const std::uint8_t* codes, const std::array<float, 16>& values) {
  Registers::Register x;
  for (int i = 0; i < Registers::kEach; i += 2) {
    x[i] = values[codes[i / 2] >> 4];
    x[i + 1] = values[codes[i / 2] & 15];
  }
  return x;
}

/// An f16 that lies anywhere.
inline float from_f16(const std::uint8_t* bytes) {
  return record_factor<Quantization::q8_0>(bytes);
}

/// Stores the lower halves of words.
inline void store_lower(bf16* to, const Registers::Words& words) {
  *reinterpret_cast<Registers::HalfWords*>(to) =
      __builtin_convertvector(words, Registers::HalfWords);
}

}  // namespace detail

}  // namespace axonn::cpu
