#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "axonn/parallel/var.h"

namespace axonn {

/// How a value is cut over one axis on which it would otherwise be the same.
enum class Cut {
  same,     ///< not cut: each rank has all of it
  rows,     ///< coordinate i of G has the i-th of G equal runs of rows
  columns,  ///< coordinate i of G has the i-th of G equal parts of each run of columns: heads
};

/// Widths of the consecutive runs of columns of a value, such as q, k and v on a rank.
using Runs = std::vector<std::int64_t>;

Cut cut_over(const Placement& placement, Axis axis);

/// Cut::rows with RunSettings::sequence_parallel if the axis divides `rows`, else Cut::same.
Cut row_cut(const Context& ctx, std::int64_t rows, Axis axis);

/// Starts the sum over `axis` of a value that is partial on it, and leaves this rank's part of it,
/// cut as `cut` says, in value: an all-reduce, or a reduce-scatter, of value.count() elements. The
/// Work is pending in the tensor, and its first reader waits. `runs`, only used for Cut::columns,
/// add up to the columns of value.
void sum_over(const Context& ctx, Tensor& value, Axis axis, Cut cut, const Runs& runs);

/// The all-gather of a value that is cut over `axis`; starts in the constructor. If the axis has
/// one rank or nothing is cut, the result is the value itself.
class Gather {
 public:
  Gather(const Context& ctx, const Tensor& piece, Axis axis, Cut cut);

  void wait() const { gathered_.wait(); }
  /// The gathered value; may still be pending. `runs`: of its columns, for Cut::columns.
  Tensor whole(const Context& ctx, const Runs& runs) const;

 private:
  int ways_;
  Cut cut_;
  Tensor gathered_;  // Cut::columns: the pieces stacked, (G · R, columns / G)
};

/// This rank's part of of_all, a vector (1, R) with an element for each row of the chunk on all
/// ranks; empty if of_all is.
View of_rows_here(const Context& ctx, const Chunk& chunk, const Tensor& of_all);

/// Gathers the rows of a chunk if they are cut over `axis`; may still be pending.
Tensor whole_rows(const Context& ctx, const Chunk& chunk, Axis axis);

}  // namespace axonn
