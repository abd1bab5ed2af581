#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/comm/grid.h"

namespace axonn {

/// How a run of a parameter's rows is cut over the row axis.
struct Segment {
  enum class Cut {
    even,    ///< the extent must divide: an error says what would do
    padded,  ///< rounded up; the last ranks end in padding, which is zero and has no owner
    shared,  ///< units go to whoever reads them, to several ranks if need be (key-value heads)
  };
  std::int64_t rows = 0;  ///< global rows of the segment
  std::int64_t unit = 1;  ///< rows that stay together, such as a head's
  Cut cut = Cut::even;
  std::int64_t readers = 0;  ///< shared: the query heads, cut evenly, that read rows / unit units
};

/// A rectangle of a parameter's global matrix, and the elements of it that a rank holds.
///
/// The rectangle is rows [row, row + rows) × columns [col, col + cols), row-major; the rank holds
/// its elements [begin, end), the first of them at `offset` of the buffer in question.
struct Slice {
  std::int64_t row = 0, rows = 0;
  std::int64_t col = 0, cols = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;
  bool owned = false;  ///< this rank counts these elements in norms and writes them in checkpoints

  std::int64_t count() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

/// The units [first, first + count) of a shared segment that coordinate `at` of `ways` reads.
struct UnitRange {
  std::int64_t first = 0, count = 0;
};
UnitRange shared_units(std::int64_t units, std::int64_t readers, int ways, int at);
/// The most units that any of `ways` coordinates reads: what each of them has room for.
std::int64_t shared_room(std::int64_t units, std::int64_t readers, int ways);

/// How a parameter, a global matrix (rows, cols) stored (out, in), lies on the grid.
///
/// A rank's block is local_rows() × local_cols(): rows cut over row_axis segment by segment,
/// columns cut evenly over col_axis; on the other of x and y it is the same. The block is part of
/// its group's flat buffer, which is cut again over z and data (parallel/parameters.h).
///
///   example   weight (8, 4), rows over x, columns over y, grid 2,2: rank (x 1, y 0) holds rows
///             4..7, columns 0..1. Vectors are (n, 1).
struct Layout {
  std::int64_t rows = 0, cols = 1;
  std::optional<Axis> row_axis;
  std::optional<Axis> col_axis;
  std::vector<Segment> segments;  ///< sum to rows; none means one even segment of unit 1
  /// Of the axes on which it is the same: on these each rank's gradient is a summand, as of a
  /// norm's weight where rows are cut.
  AxisSet partial = {};

  std::int64_t count() const { return rows * cols; }
  std::int64_t local_rows(const GridShape& shape) const;
  std::int64_t local_cols(const GridShape& shape) const;
  std::int64_t local_count(const GridShape& shape) const {
    return local_rows(shape) * local_cols(shape);
  }

  /// The rectangles of the rank at coords, whole, with offsets in its local block. Padding is in
  /// none. Ownership: the first of the ranks on x and y that hold the same elements.
  std::vector<Slice> slices(const GridShape& shape, const Coords& coords) const;

  /// Whether ranks along the row axis hold common elements of which each has a part of the
  /// gradient: it must be summed over that axis.
  bool shared(const GridShape& shape) const;

  /// Errors: UsageError that names the parameter, the axis and the extents that would do.
  void check(const std::string& name, const GridShape& shape) const;
};

/// What of `slices` lies in [begin, end) of the local buffer, with offsets counted from begin.
std::vector<Slice> clip(const std::vector<Slice>& slices, std::int64_t begin, std::int64_t end);

/// "1, 2, 3, 6": the divisors of n up to `most`, for messages.
std::string divisors_text(std::int64_t n, std::int64_t most = 1 << 20);

}  // namespace axonn
