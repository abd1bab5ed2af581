#pragma once

#include "axonn/compute/ops/backend.h"

// Products of many rows with a matrix of codes, in integers.

namespace axonn::cpu {

/// Whether there are such products with codes of a kind.
bool has_integer_tiles(Quantization kind);

/// Computes the product as integer_matmul() does, of any number of rows, with other roundings of
/// sums: records of 64 rows are unpacked to bytes, for up to 240 rows of a. The bits depend neither
/// on threads nor on other rows.
void integer_tile_matmul(const QuantizedMatmul& args, int threads);

/// Columns of the result whose sums are kept together.
constexpr int kSumColumns = 64;

/// Part of the result; its rows may go beyond the last one of the matrix.
struct SumBlock {
  std::int64_t row, rows, col, cols;
};

/// Writes sums (rows, kSumColumns), plus the bias, to a block of out.
void write_sums(const QuantizedMatmul& args, const SumBlock& block, const float* sums);

}  // namespace axonn::cpu
