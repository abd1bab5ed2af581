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

  /// The rest of the row from a value on, with which a record begins.
  CodedRow from(std::int64_t first) const { return {records + first / kUnit * kBytes}; }
  /// Values offset to offset + kLaneCount / Lanes::kRegisters.
  [[gnu::always_inline]] Registers::Register get(int offset) const {
    const std::uint8_t* const record = records + offset / kUnit * kBytes;
    const Registers::Register low = register_of<kind>(kForm, record, offset % kUnit);
    if constexpr (std::is_same_v<T, float>)
      return low;
    else
      return detail::narrow_two(
          low, register_of<kind>(kForm, record, offset % kUnit + Registers::kEach));
  }
  [[gnu::always_inline]] void prefetch(int offset) const {
    if (offset % 64 == 0) __builtin_prefetch(records + offset / kUnit * kBytes + kBytesAhead);
  }
};

/// The same of large blocks; from() gives one of them.
template <Quantization kind, typename T>
requires(has_large_blocks(kind)) struct CodedRow<kind, T> {
  static constexpr int kUnit = LargeBlock::kValues, kBytesAhead = 4096;
  static constexpr int kBytes = static_cast<int>(QuantizedForm{kind, kUnit}.record_bytes());
  const std::uint8_t* records;

  struct Block {
    const std::uint8_t* bytes;
    LargeRecord<kind> record;

    [[gnu::always_inline]] Registers::Register get(int offset) const {
      if constexpr (std::is_same_v<T, float>)
        return record.get(offset);
      else
        return detail::narrow_two(record.get(offset), record.get(offset + Registers::kEach));
    }
    [[gnu::always_inline]] void prefetch(int offset) const {
      if (offset % 64 == 0) __builtin_prefetch(bytes + offset / 64 * (kBytes / 4) + kBytesAhead);
    }
  };
  [[gnu::always_inline]] Block from(std::int64_t first) const {
    const std::uint8_t* const bytes = records + first / kUnit * kBytes;
    return {bytes, LargeRecord<kind>(bytes)};
  }
};

/// A row of values in memory, as CodedRow.
template <typename T>
struct PlainRow {
  static constexpr int kUnit = 1, kBytesAhead = 4096;
  const T* values;

  PlainRow from(std::int64_t first) const { return {values + first}; }
  [[gnu::always_inline]] Registers::Register get(int offset) const {
    return *reinterpret_cast<const Floats::Unaligned*>(values + offset);
  }
  [[gnu::always_inline]] void prefetch(int offset) const {
    __builtin_prefetch(reinterpret_cast<const char*>(values + offset) + kBytesAhead);
  }
};

}  // namespace axonn::cpu
