#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/random.h"

namespace axonn::testing_support {

/// Where the factors in f16 of a record of a kind of ggml lie.
inline std::vector<std::int64_t> factor_places(Quantization kind) {
  const LargeBlock large = LargeBlock::of(kind);
  std::vector<std::int64_t> places{has_large_blocks(kind) ? large.factor : 0};
  if (has_least_values(kind)) places.push_back(has_large_blocks(kind) ? large.least : 2);
  return places;
}

/// Records of values; of a kind that is only read, records of any codes and scales instead, which
/// depend on the first value, with factors of which values are at most 2 in size.
inline std::vector<std::byte> some_records(const QuantizedForm& form,
                                           std::span<const float> values) {
  std::vector<std::byte> records(form.bytes(std::ssize(values)));
  if (!is_only_read(form.kind)) {
    quantize_records(form, values, records);
    return records;
  }
  // A sign, the exponent and 2 bits of the fraction: 2^-12, times scales up to 32, or 2^-7.
  const auto size = form.kind == Quantization::iq4_xs ? std::byte{0x0c} : std::byte{0x20};
  const std::uint64_t seed = std::uint64_t{std::bit_cast<std::uint32_t>(values[0])} << 32;
  for (std::size_t i = 0; i < records.size(); ++i)
    records[i] = static_cast<std::byte>(mix_bits(seed + i) & 255);
  for (std::int64_t at = 0; at < std::ssize(records); at += form.record_bytes())
    for (const std::int64_t place : factor_places(form.kind)) {
      std::byte& upper = records[at + place + 1];
      upper = (upper & std::byte{0x83}) | size;
    }
  return records;
}

}  // namespace axonn::testing_support
