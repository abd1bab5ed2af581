#pragma once

#include "axonn/compute/ops/backend.h"

// Products with a matrix of codes, in integers.

namespace axonn::cpu {

/// Whether integer_matmul() computes such a product: with codes that are evenly apart (those of
/// ggml) in whole blocks, by a set of instructions that has products of bytes; of more than four
/// rows only where has_integer_tiles().
bool has_integer_matmul(const QuantizedMatmul& args);

/// Computes the product with a's values rounded to 8 bits, each 32 of a row with a factor in f32,
/// as Q8_0 has them: code · code is summed exactly, the sums of 32 in f32. Not to the bit that of
/// values: an element is off by up to the sum of |b| times half a code of a. The bits depend
/// neither on threads nor on what is in other rows, but products of more than four rows round sums
/// elsewhere (integer_tiles.h). For one row bound by memory, the bytes of records, with AVX-512.
void integer_matmul(const QuantizedMatmul& args, int threads);

}  // namespace axonn::cpu
