#pragma once

#include "axonn/base/check.h"
#include "axonn/ops/dispatch.h"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/operations.h"
#include "axonn/ops/rowwise/matrix.h"

// What the run() of row-wise operations needs. A device has a Launch (ops/cpu/launch.h and
// ops/cuda/launch.cuh), a small value that launches kernels of this folder by these functions:
//
// - rows(work, kernel): kernel(team, row) for every row.
// - tiles(rows, cols, kernel): kernel(team, tile) for tiles that cover all columns of all rows.
// - reduce(rows, cols, out, make): the same, where kernel = make(partial) writes a partial sum for
//   each tile. Adds these to out.
// - columns(R, C, out, make): sums down columns, see columns.h. kernel = make(partial),
//   with an array of n partial sums (blocks, C). Adds their rows, in their order, to the n arrays
//   of out (C).
// - row_blocks(work, C, out, make): kernel(team, block) for every kRowBlock rows. kernel =
//   make(partial), with partial sums (blocks, C). Adds their rows, in their order, to out (C).
// - rows_by_id(kernel): an EmbeddingBackwardKernel.
namespace axonn::ops {

using rowwise::Matrix;

/// The columns of a view, as kernels count them.
inline int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace axonn::ops
