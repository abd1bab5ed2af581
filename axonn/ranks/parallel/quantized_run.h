#pragma once

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
  std::int64_t begin = 0, block = 1;  ///< in values of the matrix, counted row after row
  QuantizedValues values;
  std::vector<float> read = {};  ///< memory of the values themselves, kept for the next run

  float factor(std::int64_t i) const { return values.factors[(i - begin) / block]; }
};

/// Quantizes the blocks of which the elements of a slice are a part. `read` gives the values of the
/// matrix. Throws UsageError, with the matrix, for a value that cannot be quantized.
void quantize_blocks(const QuantizedMatrix& matrix, const Slice& slice,
                     const std::function<void(const Slice&, std::span<float>)>& read,
                     QuantizedRun& out);

/// Calls f(part) for parts of a slice, in order, whose blocks may be in memory at once. Each begins
/// a multiple of QuantizedForm::kMostUnit elements after the slice's begin.
void for_quantizable_parts(const QuantizedMatrix& matrix, const Slice& slice,
                           const std::function<void(const Slice& part)>& f);

}  // namespace axonn
