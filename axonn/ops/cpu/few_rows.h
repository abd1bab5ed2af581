#pragma once

#include "axonn/ops/backend.h"

namespace axonn::cpu {

/// Whether a product is of few rows with a matrix that lies (N, K): what a step of generation is
/// made of. Reading the matrix then takes longer than the arithmetic.
bool has_few_rows(const MatmulShape& shape);

/// Such a product, of checked arguments. Reads b once, one long stream a thread.
///
/// Each element is a sum of its own, in an order that depends on K, and on whether there are more
/// than two rows: neither what other rows hold nor the number of threads change a bit of it.
/// Bound by memory, N · K elements of b, up to 8 rows or so; by arithmetic from there on.
void few_rows_matmul(const Matmul& args, int threads);

}  // namespace axonn::cpu
