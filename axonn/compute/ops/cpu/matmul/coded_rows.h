#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/quantization.h"

// Rows of a matrix that a product reads one after another.

namespace axonn::cpu {

/// A row of records of whole blocks, of which a register holds as many T, f32 or bf16, as of a row
/// in memory.
template <Quantization kind, typename T>
struct CodedRow {
  static constexpr int kUnit = static_cast<int>(QuantizedForm::most_unit(kind));
  static constexpr QuantizedForm kForm{kind, kUnit};
  static constexpr int kBytes = static_cast<int>(kForm.record_bytes()), kBytesAhead = 4096;
  const std::uint8_t* records;

  /// Values first + offset to first + offset + kLaneCount / Lanes::kRegisters of the row; `first`
  /// begins a record.
  [[gnu::always_inline]] Registers::Register get(std::int64_t first, int offset) const {
    const std::uint8_t* const record = records + first / kUnit * kBytes + offset / kUnit * kBytes;
    const Registers::Register low = register_of<kind>(kForm, record, offset % kUnit);
    if constexpr (std::is_same_v<T, float>)
      return low;
    else
      return detail::narrow_two(
          low, register_of<kind>(kForm, record, offset % kUnit + Registers::kEach));
  }
  [[gnu::always_inline]] void prefetch(std::int64_t first, int offset) const {
    if (offset % 64 == 0)
      __builtin_prefetch(records + (first + offset) / kUnit * kBytes + kBytesAhead);
  }
};

/// A row of values in memory, as CodedRow.
template <typename T>
struct PlainRow {
  static constexpr int kBytesAhead = 4096;
  const T* values;

  [[gnu::always_inline]] Registers::Register get(std::int64_t first, int offset) const {
    return *reinterpret_cast<const Floats::Unaligned*>(values + first + offset);
  }
  [[gnu::always_inline]] void prefetch(std::int64_t first, int offset) const {
    __builtin_prefetch(reinterpret_cast<const char*>(values + first + offset) + kBytesAhead);
  }
};

}  // namespace axonn::cpu
