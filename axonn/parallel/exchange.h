#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "axonn/parallel/var.h"

namespace axonn {

/// How a value lies along one axis whose ranks would otherwise all hold the same of it.
enum class Cut {
  same,     ///< all of it
  rows,     ///< a run of its rows: coordinate i of G has the i-th of G equal ones
  columns,  ///< the i-th of G equal parts of each of its runs of columns: heads
};

/// Widths of the runs of columns that a value is made of, such as q, k and v of a rank.
using Runs = std::vector<std::int64_t>;

Cut cut_over(const Placement& placement, Axis axis);

/// Whether `rows` rows are to be cut over the axis: asked for, and evenly divisible.
Cut row_cut(const Context& ctx, std::int64_t rows, Axis axis);

/// Starts the sum over `axis` of a value that is partial on it. value becomes what `cut` leaves
/// here: an all-reduce, or a reduce-scatter, of value.count() elements. The tensor carries the
/// Work; who reads it waits. `runs` add up to its columns, and count where those are cut.
void sum_over(const Context& ctx, Tensor& value, Axis axis, Cut cut, const Runs& runs);

/// The other way: a value that is cut over `axis` on its way to being whole there. The all-gather
/// of its elements starts at once. On one rank, or where nothing is cut, it is the value itself.
class Gather {
 public:
  Gather(const Context& ctx, const Tensor& piece, Axis axis, Cut cut);

  void wait() const { gathered_.wait(); }
  /// All of it; may still be pending. `runs` are of its columns.
  Tensor whole(const Context& ctx, const Runs& runs) const;

 private:
  int ways_;
  Cut cut_;
  Tensor gathered_;  // columns: the pieces one after another
};

/// What of (1, R) numbers of all rows of a chunk belongs to those here; empty where there are none.
View of_rows_here(const Context& ctx, const Chunk& chunk, const Tensor& of_all);

/// All rows of a chunk whose rows may be cut over `axis`; may still be pending.
Tensor whole_rows(const Context& ctx, const Chunk& chunk, Axis axis);

}  // namespace axonn
