#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/grid/layout.h"

namespace axonn {

/// A matrix (rows, cols), by its name for messages, and how it is quantized.
struct QuantizedMatrix {
  Quantization kind = Quantization::none;
  std::string_view name;
  std::int64_t rows = 0, cols = 1;

  std::int64_t block() const { return block_of(kind, cols); }
};

/// Whole blocks of a matrix as codes.
struct QuantizedRun {
  Quantization kind = Quantization::none;
  std::int64_t begin = 0, block = 1;    ///< in values of the matrix, counted row after row
  QuantizedValues values = {};          ///< not of large blocks
  std::vector<std::byte> records = {};  ///< of large blocks; else memory that is kept
  std::vector<float> read = {};         ///< memory of the values themselves, kept for the next run

  /// Writes the record of some of its values: at most a unit, all of one block.
  void write_record_of(const QuantizedForm& form, std::int64_t first, std::int64_t count,
                       std::byte* out) const;
  /// The value that one of the matrix's stands for.
  float value(std::int64_t i) const;
};

/// Where the blocks of a matrix come from.
struct MatrixBlocks {
  std::function<void(const Slice&, std::span<float>)> values;
  /// Gives records of the kind's largest unit from a block on; false: the matrix has values alone.
  std::function<bool(std::int64_t first, std::span<std::byte> records)> records = {};
};

/// Reads or quantizes the blocks of which the elements of a slice are a part. Throws UsageError,
/// with the matrix, for a value that cannot be quantized.
void quantize_blocks(const QuantizedMatrix& matrix, const Slice& slice, const MatrixBlocks& from,
                     QuantizedRun& out);

/// Calls f(part) for parts of a slice, in order, whose blocks may be in memory at once. Each begins
/// a multiple of QuantizedForm::aligned(kind) elements after the slice's begin.
void for_quantizable_parts(const QuantizedMatrix& matrix, const Slice& slice,
                           const std::function<void(const Slice& part)>& f);

}  // namespace axonn
