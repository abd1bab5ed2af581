#pragma once

#include <cstdint>
#include <cstring>

#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/ops/cpu/integers.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/quantization.h"

// Codes of records as registers of bytes, for products of integers.

namespace axonn::cpu {

constexpr int kStrip = 64;         ///< codes of a strip
constexpr int kFactorValues = 32;  ///< values with one factor in what codes are multiplied by
constexpr int kPadded = 256;       ///< zeros follow what codes are multiplied by up to a multiple

/// What codes are multiplied by, of one factor, in 8 bits.
struct RoundedBlock {
  std::uint8_t codes[kFactorValues] = {};      ///< two's complement
  std::int32_t fours[kFactorValues / 4] = {};  ///< sums of four codes each
  float factor = 0;

  /// Zeros unless the values exist.
  template <typename T>
  RoundedBlock(const T* values, bool exists) {
    if (exists) factor = q8_0_codes(values, kFactorValues, codes);
    for (int i = 0; i < kFactorValues; ++i) fours[i / 4] += static_cast<std::int8_t>(codes[i]);
  }
  /// Of values: the factor times all codes.
  float sum() const {
    std::int32_t codes_sum = 0;
    for (const std::int32_t four : fours) codes_sum += four;
    return factor * static_cast<float>(codes_sum);
  }
};

/// `count` bits of each byte of a register, from the bit on that `shifts` has for each 8 bytes.
[[gnu::always_inline]] inline Integers bits_of(Integers bytes, int count, Integers shifts) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  return bytes >> shifts & static_cast<std::uint64_t>((1 << count) - 1) * kOnes;
}

/// Register i of a strip of numbers for each 8 bytes, by the first of them.
[[gnu::always_inline]] inline Integers for_bytes(int i, auto number_of) {
  Integers all;
  for (int j = 0; j < kRegisterBytes / 8; ++j) all[j] = number_of(i * kRegisterBytes + 8 * j);
  return all;
}

/// Register i of the bits of 32 bytes, of which the second half of a strip has those `step` higher.
[[gnu::always_inline]] inline Integers shared_bits(const std::uint8_t* bytes, int count, int first,
                                                   int step, int i) {
  return bits_of(detail::same_32(bytes, i), count,
                 for_bytes(i, [=](int byte) { return byte < 32 ? first : first + step; }));
}

/// Strips of codes, counted from kOffset below 0, and what they are multiplied by.
template <Quantization kind>
struct CodeStrips {
  static constexpr QuantizedForm kForm{kind, QuantizedForm::most_unit(kind)};
  static constexpr int kPart = 32, kValues = 4 * kPart,
                       kRecord = static_cast<int>(kForm.record_bytes()),
                       kBytes = kValues / kPart * kRecord;
  static constexpr int kOffset = kind == Quantization::q8_0   ? kSignedOffset
                                 : kind == Quantization::q5_0 ? 16
                                                              : 8;
  const std::uint8_t* records;

  /// Register i of a strip.
  [[gnu::always_inline]] Integers codes(int strip, int i) const {
    const std::uint8_t* const first = records + 2 * strip * kRecord + kForm.factor_bytes();
    if constexpr (kind == Quantization::q8_0) return detail::blocks_of_32(first, kRecord, i);
    const Integers low = bits_of(detail::blocks_of_16(first + kForm.fifth_bytes(), kRecord, i), 4,
                                 for_bytes(i, [](int byte) { return byte % 32 < 16 ? 0 : 4; }));
    if constexpr (kind == Quantization::q5_0)
      return detail::plus_if_set(low, first, kRecord, i, 16);
    return low;
  }
  /// What codes are multiplied by, of each part.
  [[gnu::always_inline]] void scales(float (&out)[kValues / kPart]) const {
    detail::four_f16(records, kRecord, out);
  }
};

template <Quantization kind>
requires(has_large_blocks(kind)) struct CodeStrips<kind> {
  static constexpr LargeBlock kAt = LargeBlock::of(kind);
  static constexpr int kPart = kAt.part, kValues = LargeBlock::kValues;
  static constexpr int kBytes = static_cast<int>(QuantizedForm{kind, kValues}.record_bytes());
  static constexpr int kOffset = kind == Quantization::q6_k   ? 32
                                 : kind == Quantization::q3_k ? 4
                                                              : 0;
  const std::uint8_t* bytes;
  LargeRecord<kind> record;

  [[gnu::always_inline]] explicit CodeStrips(const std::uint8_t* at) : bytes(at), record(at) {}

  [[gnu::always_inline]] Integers codes(int strip, int i) const {
    const int half = strip / 2, in = strip % 2;
    const std::uint8_t *const low = bytes + kAt.low, *const high = bytes + kAt.high;
    if constexpr (kind == Quantization::q3_k)
      return shared_bits(low + half * 32, 2, in * 4, 2, i) | shared_bits(high, 1, 2 * strip, 1, i)
                                                                 << 2;
    if constexpr (kind == Quantization::q6_k)
      return bits_of(detail::integers_at(low + half * 64 + i * kRegisterBytes), 4,
                     for_bytes(i, [=](int) { return in * 4; })) |
             shared_bits(high + half * 32, 2, in * 4, 2, i) << 4;
    const Integers four = shared_bits(low + strip * 32, 4, 0, 4, i);
    if constexpr (kind == Quantization::q5_k)
      return four | shared_bits(high, 1, 2 * strip, 1, i) << 4;
    return four;
  }
  [[gnu::always_inline]] void scales(float (&out)[kValues / kPart]) const {
    std::memcpy(out, record.scales(), sizeof out);
  }
};

}  // namespace axonn::cpu
