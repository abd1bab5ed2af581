#pragma once

#include "axonn/ops/backend.h"

namespace axonn::cpu {

/// Whether a product has few rows and a matrix b stored (N, K), like the products of a generation
/// step. Reading the matrix then takes longer than the arithmetic.
bool has_few_rows(const MatmulShape& shape);

/// Computes such a product; the caller has checked the arguments. Each thread reads its part of b
/// once, as one stream.
///
/// The order of an element's sum depends only on K and on whether there are more than two rows, so
/// its bits do not depend on other rows or on the number of threads. Bound by memory, N · K
/// elements of b, up to about 8 rows; by arithmetic for more.
void few_rows_matmul(const Matmul& args, int threads);

}  // namespace axonn::cpu
