#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "axonn/compute/tensor/dtype.h"

/// Blocks of 256 values of ggml, to the byte:
///
///   q4_k  f16 factor, f16 factor of least values, 12 bytes of 6 bits (SixBits), 128 bytes: each 32
///         have the codes of 64 values, the lower halves first
///   q6_k  128 bytes with the lower 4 bits of codes: each 64 have those of 128 values, the lower
///         halves first; 64 bytes with 2 bits more: each 32 have those of 128 values, 32 apart; 16
///         scales of signed bytes; f16 factor

namespace axonn {

struct LargeBlock {
  static constexpr int kValues = 256;
  static constexpr int kPart4 = 32, kPart6 = 16;  ///< values with one scale in q4_k, and in q6_k
  /// Where the parts of a record begin.
  static constexpr int kLeast4 = 2, kScales4 = 4, kCodes4 = 16;
  static constexpr int kHigh6 = 128, kScales6 = 192, kFactor6 = 208;
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

/// Value i of a record of q4_k. All products are exact, so that the value is rounded once.
AXONN_DEVICE inline float q4_k_value(const std::uint8_t* record, int i) {
  using Block = LargeBlock;
  const SixBits own(record + Block::kScales4, i / Block::kPart4);
  const int both = record[Block::kCodes4 + i / 64 * 32 + i % 32],
            code = i % 64 < 32 ? both & 15 : both >> 4;
  return half_at(record) * static_cast<float>(own.scale) * static_cast<float>(code) -
         half_at(record + Block::kLeast4) * static_cast<float>(own.least);
}

/// Value i of a record of q6_k, which is exact.
AXONN_DEVICE inline float q6_k_value(const std::uint8_t* record, int i) {
  using Block = LargeBlock;
  const int half = i / 128, in = i % 128, both = record[half * 64 + in % 64],
            low = in < 64 ? both & 15 : both >> 4,
            high = record[Block::kHigh6 + half * 32 + in % 32] >> in / 32 * 2 & 3,
            scale = static_cast<std::int8_t>(record[Block::kScales6 + i / Block::kPart6]);
  return half_at(record + Block::kFactor6) * static_cast<float>(scale) *
         static_cast<float>((low | high << 4) - 32);
}

/// Makes the record of 256 finite values by a search for the scales with small errors. The factors
/// are infinite if f16 does not hold them.
void make_large_block(Quantization kind, std::span<const float, LargeBlock::kValues> values,
                      std::byte* record);

}  // namespace axonn
