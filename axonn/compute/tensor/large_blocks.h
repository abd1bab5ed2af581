#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "axonn/compute/tensor/four_bit_values.h"

/// Blocks of 256 values of ggml, to the byte. Of codes the lower 4 bits lie in halves of bytes, of
/// q2_k and q3_k the lower 2 in quarters, and the bits above them in bytes of their own:
///
///   q2_k  16 bytes with scales in the lower halves and least values in the higher ones; 64 bytes
///         with codes: each 32 have those of 128 values, 32 apart; f16 factor, f16 factor of least
///         values
///   q3_k  32 bytes with the third bit of codes: byte i % 32 has that of value i; 64 bytes with 2
///         bits: each 32 have those of 128 values, 32 apart; 12 bytes of 6 bits (SixBitScale); f16
///         factor
///   q4_k  f16 factor, f16 factor of least values, 12 bytes of 6 bits (SixBits), 128 bytes: each 32
///         have the codes of 64 values, the lower halves first
///   q5_k  the same with 32 bytes before the 128: byte i % 32 has the fifth bit of value i
///   q6_k  128 bytes with the lower 4 bits of codes: each 64 have those of 128 values, the lower
///         halves first; 64 bytes with 2 bits more: each 32 have those of 128 values, 32 apart; 16
///         scales of signed bytes; f16 factor
///   iq4_xs  f16 factor; 2 bytes with the upper 2 bits of 8 scales, 4 bytes with the lower 4; 128
///         bytes: each 16 have the codes of 32 values, the lower halves first

namespace axonn {

/// Where the parts of a record begin.
struct LargeBlock {
  static constexpr int kValues = 256;

  int part;    ///< values with one scale
  int factor;  ///< an f16
  int least;   ///< the f16 factor of least values, or the only one
  int scales;
  int low;   ///< the lower bits of codes
  int high;  ///< the bits above them, if there are any

  AXONN_DEVICE static constexpr LargeBlock of(Quantization kind) {
    if (kind == Quantization::q2_k) return {16, 80, 82, 0, 16, 16};
    if (kind == Quantization::q3_k) return {16, 108, 108, 96, 32, 0};
    if (kind == Quantization::q4_k) return {32, 0, 2, 4, 16, 16};
    if (kind == Quantization::q5_k) return {32, 0, 2, 4, 48, 16};
    if (kind == Quantization::iq4_xs) return {32, 0, 0, 2, 8, 8};
    return {16, 208, 208, 192, 0, 128};
  }
};

/// An f16 that lies anywhere.
AXONN_DEVICE inline float half_at(const std::uint8_t* bytes) {
  return get(f16{static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8)});
}

/// The scale and the least value of a part of 32 values, of 6 bits each, in 12 bytes for 8 parts.
struct SixBits {
  AXONN_DEVICE SixBits(const std::uint8_t* bytes, int part) {
    if (part < 4) {
      scale = bytes[part] & 63;
      least = bytes[part + 4] & 63;
    } else {
      scale = (bytes[part + 4] & 15) | bytes[part - 4] >> 6 << 4;
      least = bytes[part + 4] >> 4 | bytes[part] >> 6 << 4;
    }
  }
  int scale, least;
};

/// The scale, from -32 to 31, of a part of 16 values in 12 bytes for 16 parts.
AXONN_DEVICE inline int six_bit_scale(const std::uint8_t* bytes, int part) {
  const int low = bytes[part % 8] >> part / 8 * 4 & 15, high = bytes[8 + part % 4] >> part / 4 * 2;
  return (low | (high & 3) << 4) - 32;
}

/// Value i of a record. All products are exact, so that the value is rounded at most once.
template <Quantization kind>
AXONN_DEVICE float large_value(const std::uint8_t* record, int i) {
  constexpr LargeBlock kAt = LargeBlock::of(kind);
  const int part = i / kAt.part, half = i / 128, in = i % 128;
  const std::uint8_t *const low = record + kAt.low, *const high = record + kAt.high,
                            *const scales = record + kAt.scales;
  const auto times = [&](int scale, auto code) {
    return half_at(record + kAt.factor) * static_cast<float>(scale) * static_cast<float>(code);
  };
  if constexpr (kind == Quantization::q2_k) {
    const int code = low[half * 32 + in % 32] >> in / 32 * 2 & 3;
    return times(scales[part] & 15, code) -
           half_at(record + kAt.least) * static_cast<float>(scales[part] >> 4);
  } else if constexpr (has_least_values(kind)) {
    const SixBits own(scales, part);
    const int both = low[i / 64 * 32 + i % 32];
    int code = i % 64 < 32 ? both & 15 : both >> 4;
    if constexpr (kind == Quantization::q5_k) code |= (high[i % 32] >> i / 32 & 1) << 4;
    return times(own.scale, code) - half_at(record + kAt.least) * static_cast<float>(own.least);
  } else if constexpr (kind == Quantization::q3_k) {
    const int two = low[half * 32 + in % 32] >> in / 32 * 2 & 3, third = high[i % 32] >> i / 32 & 1;
    return times(six_bit_scale(scales, part), (two | third << 2) - 4);
  } else if constexpr (kind == Quantization::iq4_xs) {
    const int four = scales[2 + part / 2] >> part % 2 * 4 & 15,
              two = scales[part / 4] >> part % 4 * 2;
    const unsigned both = low[part * 16 + i % 16], code = i % 32 < 16 ? both & 15U : both >> 4;
    return times((four | (two & 3) << 4) - 32, FourBitValues::iq4(code));
  } else {
    const int both = low[half * 64 + in % 64], four = in < 64 ? both & 15 : both >> 4,
              two = high[half * 32 + in % 32] >> in / 32 * 2 & 3;
    return times(static_cast<std::int8_t>(scales[part]), (four | two << 4) - 32);
  }
}

/// Makes the record of 256 finite values by a search for the scales with small errors. The factors
/// are infinite if f16 does not hold them. Not of a kind that is_only_read().
void make_large_block(Quantization kind, std::span<const float, LargeBlock::kValues> values,
                      std::byte* record);

}  // namespace axonn
