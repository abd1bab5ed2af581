#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/compute/tensor/large_blocks.h"

namespace axonn {

/// The numbers of a block that is not large.
struct BlockFactors {
  float factor = 0;
  float least = 0;  ///< if has_least_values()
};

/// The value of a code; not of large blocks. Those with a least value are rounded once.
AXONN_DEVICE constexpr float dequantized(Quantization kind, unsigned code, const BlockFactors& of) {
  const auto& [factor, least] = of;
  if (has_least_values(kind)) return static_cast<float>(code) * factor + least;
  if (kind == Quantization::nf4) return FourBitValues::nf4(code) * factor;
  if (kind == Quantization::fp4) return FourBitValues::fp4(code) * factor;
  if (kind == Quantization::iq4_nl) return FourBitValues::iq4(code) * factor;
  if (kind == Quantization::mxfp4) return FourBitValues::mxfp4(code) * factor;
  if (kind == Quantization::q4_0) return (static_cast<float>(code) - 8.0f) * factor;
  if (kind == Quantization::q5_0) return (static_cast<float>(code) - 16.0f) * factor;
  const auto number = static_cast<float>(static_cast<std::int8_t>(code));
  return kind == Quantization::int8 ? number * factor / 127.0f : number * factor;
}

/// A power of two as a factor of mxfp4 has it, with a bias of 127; 255 stands for NaN.
AXONN_DEVICE inline float power_of_two(std::uint8_t exponent) {
  constexpr std::uint32_t kLeast = 0x00400000, kNan = 0x7fc00000;  // 2^-127 has no exponent in f32
  if (exponent == 255) return std::bit_cast<float>(kNan);
  return std::bit_cast<float>(exponent == 0 ? kLeast : std::uint32_t{exponent} << 23);
}

/// The factors of a record. Records begin anywhere, so words are put together from bytes.
template <Quantization kind>
AXONN_DEVICE BlockFactors record_factors(const std::uint8_t* record) {
  if constexpr (kind == Quantization::mxfp4) {
    return {power_of_two(record[0])};
  } else if constexpr (is_of_ggml(kind)) {
    return {half_at(record), has_least_values(kind) ? half_at(record + 2) : 0};
  } else {
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(record[i]) << 8 * i;
    return {std::bit_cast<float>(bits)};
  }
}

/// Value i of a record.
template <Quantization kind>
AXONN_DEVICE float record_value(const QuantizedForm& form, const std::uint8_t* record, int i) {
  if constexpr (has_large_blocks(kind)) return large_value<kind>(record, i);
  return dequantized(kind, form.code(record + form.factor_bytes(), i),
                     record_factors<kind>(record));
}

/// Calls f with the kind as a std::integral_constant; not for Quantization::none.
void with_quantization(Quantization kind, auto f) {
  const auto as = [&]<Quantization which>(std::integral_constant<Quantization, which> constant) {
    if (kind == which) f(constant);
  };
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (as(std::integral_constant<Quantization, kCodes[i]>{}), ...);
  }
  (std::make_index_sequence<kCodes.size()>{});
}

/// What to do instead of making blocks of a kind that is_only_read().
inline constexpr const char* kMadeInsteadOfRead =
    "take file, with a file that has them, or q3_k or another kind of GGUF";

/// The values in a block of a matrix with rows of so many values.
std::int64_t block_of(Quantization kind, std::int64_t cols);

/// Writes the codes of the values of a block, of four bits where `kind` has such, and returns their
/// factors as they are stored. Of q8_0 to q5_1 both have the bits that the package gguf writes.
/// Throws UsageError for a value that is not finite, and for one that a factor in f16 cannot hold.
/// Not for large blocks.
BlockFactors quantize_block(Quantization kind, std::span<const float> values, std::uint8_t* codes);

/// Values as codes, and the factors of each block.
struct QuantizedValues {
  std::vector<std::uint8_t> codes;  ///< one a value; of int8 and q8_0 two's complement
  std::vector<float> factors;
  std::vector<float> least;  ///< if has_least_values()

  BlockFactors of_block(std::int64_t i) const { return {factors[i], least.empty() ? 0 : least[i]}; }
  float value(Quantization kind, std::int64_t i, std::int64_t block) const;
};

/// Quantizes blocks of so many values; the last one may have fewer. Throws as quantize_block().
void quantize(Quantization kind, std::int64_t block, std::span<const float> values,
              QuantizedValues& out);

/// The factor of the codes of q8_0 of the values of a block: not finite if a value is not.
template <typename T>
AXONN_DEVICE float q8_0_factor(const T* values, int count) {
  // Sizes of floats are in the order of their bits.
  std::int32_t most = 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t size = std::bit_cast<std::int32_t>(get(values[i])) & 0x7fffffff;
    most = size > most ? size : most;
  }
  return std::bit_cast<float>(most) / 127.0f;
}

/// The code of a value times the inverse of that factor: the nearest integer, ties away from 0, as
/// std::round(), which would be a call.
AXONN_DEVICE inline std::uint8_t q8_0_code(float x) {
  constexpr float kMost = 127;
  const float low = x < kMost ? x : kMost, within = -kMost < low ? low : -kMost;
  const auto whole = static_cast<std::int32_t>(within);
  const float rest = within - static_cast<float>(whole);
  return static_cast<std::uint8_t>(whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0));
}

/// Writes the codes of a block, and returns its factor.
template <typename T>
AXONN_DEVICE float q8_0_codes(const T* values, int count, std::uint8_t* codes) {
  const float factor = q8_0_factor(values, count), inverse = factor == 0 ? 0.0f : 1.0f / factor;
  for (int i = 0; i < count; ++i) codes[i] = q8_0_code(get(values[i]) * inverse);
  return factor;
}

/// The D values of a head of keys or values as records of q8_0, of 32 values each, the last one of
/// those that are left. Records of 32 have the bytes that the package gguf writes.
struct HeadCodes {
  static constexpr int kRecord = 32, kFactorBytes = 2, kRecordBytes = kRecord + kFactorBytes;

  AXONN_DEVICE static constexpr std::int64_t records(std::int64_t D) {
    return (D + kRecord - 1) / kRecord;
  }
  AXONN_DEVICE static constexpr std::int64_t bytes(std::int64_t D) {
    return D + kFactorBytes * records(D);
  }
  /// The number of values of record i.
  AXONN_DEVICE static constexpr int count(std::int64_t D, std::int64_t i) {
    const std::int64_t left = D - i * kRecord;
    return static_cast<int>(left < kRecord ? left : kRecord);
  }
  template <typename T>
  AXONN_DEVICE static void put_record(const T* values, int count, std::uint8_t* record) {
    f16 factor;
    put(factor, q8_0_codes(values, count, record + kFactorBytes));
    record[0] = static_cast<std::uint8_t>(factor.bits & 0xff);
    record[1] = static_cast<std::uint8_t>(factor.bits >> 8);
  }
  /// Replaces values by those of the codes of a record of theirs.
  template <typename T>
  AXONN_DEVICE static void round(const T* values, int count, T* out) {
    const float factor = q8_0_factor(values, count), inverse = factor == 0 ? 0.0f : 1.0f / factor;
    f16 stored;
    put(stored, factor);
    for (int i = 0; i < count; ++i)
      put(out[i],
          dequantized(Quantization::q8_0, q8_0_code(get(values[i]) * inverse), {get(stored)}));
  }
};

/// Writes codes, of at most a unit, and their factors as a record; the others are 0.
void write_record(const QuantizedForm& form, std::span<const std::uint8_t> codes,
                  const BlockFactors& factors, std::byte* out);

/// The codes and factors of records, whose units are whole blocks; not large ones.
void read_records(const QuantizedForm& form, std::span<const std::byte> records,
                  QuantizedValues& out);

/// Quantizes values, of which each unit is a block, as records. Throws as quantize_block(), and for
/// a kind that is_only_read().
void quantize_records(const QuantizedForm& form, std::span<const float> values,
                      std::span<std::byte> records);
/// Writes the values of records from value `first` on.
void read_values(const QuantizedForm& form, std::span<const std::byte> records, std::int64_t first,
                 std::span<float> values);
/// Whether all factors of whole records of a kind of ggml are finite.
bool has_finite_factors(const QuantizedForm& form, std::span<const std::byte> records);

}  // namespace axonn
