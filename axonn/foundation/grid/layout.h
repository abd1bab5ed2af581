#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/foundation/grid/grid_shape.h"

namespace axonn {

/// A run of a parameter's rows, and how it is cut over the row axis.
struct Segment {
  enum class Kind : std::uint8_t {
    even,    ///< the extent must divide the units; else Layout::check() names extents that do
    padded,  ///< rounded up; the last ranks end in padding, which is zero and has no owner
    shared,  ///< each unit goes to every rank that reads it, maybe to several (key-value heads)
  };
  std::int64_t rows = 0;  ///< global rows of the segment
  std::int64_t unit = 1;  ///< rows that stay together, such as those of a head
  Kind kind = Kind::even;
  /// shared: number of query heads that read the units, a multiple of these; cut as if padded
  std::int64_t readers = 0;
};

/// A rectangle of a parameter's global matrix, and the elements of it that a rank holds.
///
/// The rectangle is rows [row, row + rows) × columns [col, col + cols), row-major. The rank holds
/// its elements [begin, end), from `offset` on in a buffer that the context names.
struct Slice {
  std::int64_t row = 0, rows = 0;
  std::int64_t col = 0, cols = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;
  bool owned = false;  ///< this rank counts these elements in norms and writes them in checkpoints

  std::int64_t count() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

/// Whether the slice's rectangle lies in a matrix (rows, cols), and its elements in the rectangle.
/// rows · cols must not overflow.
bool lies_in(const Slice& slice, std::int64_t rows, std::int64_t cols);

/// The units [first, first + count) of a shared segment that coordinate `at` of `ways` reads. Each
/// has as many of the readers, the last ones maybe fewer.
struct UnitRange {
  std::int64_t first = 0, count = 0;
};
UnitRange shared_units(std::int64_t units, std::int64_t readers, int ways, int at);
/// The most units that any of `ways` coordinates would read if all had as many readers. Each of
/// them reserves this room.
std::int64_t shared_room(std::int64_t units, std::int64_t readers, int ways);

/// Expert `number` of the `of` of a layer. Its holders are the ranks that store it: with
/// GridShape::experts = e, those of z mod e = number / (of / e). e must divide `of`.
struct ExpertNumber {
  std::int64_t number = 0, of = 1;
  bool operator==(const ExpertNumber&) const = default;
  bool held_at(const GridShape& shape, const Coords& coords) const {
    return number / (of / shape.experts) == experts_part(shape, coords);
  }
};

/// How a parameter, a global matrix (rows, cols) stored (out, in), lies on the grid.
///
/// A rank's block has room for local_rows() × local_cols(): rows cut over row_axis segment by
/// segment, columns over col_axis, evenly or with col_unit. On an x or y that is neither, the block
/// is the same. It is part of its group's flat buffer, which is cut again over z and data
/// (parallel/parameters.h).
///
///   example   weight (8, 4), rows over x, columns over y, grid 2,2: rank (x 1, y 0) holds rows
///             4..7, columns 0..1. Vectors are (n, 1).
struct Layout {
  std::int64_t rows = 0, cols = 1;
  std::optional<Axis> row_axis = {};
  std::optional<Axis> col_axis = {};
  std::vector<Segment> segments = {};  ///< add up to rows; empty: one even segment of unit 1
  /// Columns that stay together, such as those of a head: each coordinate has as many such units,
  /// the last ones maybe fewer, whose block of cols_at() columns begins the room. 0: even.
  std::int64_t col_unit = 0;
  /// Axes on which the block is the same but each rank computes only a summand of its gradient,
  /// as for a norm's weight on an axis that cuts rows.
  AxisSet partial = {};
  /// Set for a parameter of an expert: only its holders have a block of it.
  std::optional<ExpertNumber> expert = {};

  std::int64_t count() const { return rows * cols; }
  std::int64_t local_rows(const GridShape& shape) const;
  std::int64_t local_cols(const GridShape& shape) const;
  /// The columns of the rank at coords: local_cols() or, with col_unit, maybe fewer, or none.
  std::int64_t cols_at(const GridShape& shape, const Coords& coords) const;
  bool even_cols(const GridShape& shape) const;
  std::int64_t local_count(const GridShape& shape) const {
    return local_rows(shape) * local_cols(shape);
  }

  /// Whether the rank at coords holds a block.
  bool held_at(const GridShape& shape, const Coords& coords) const {
    return !expert || expert->held_at(shape, coords);
  }

  /// The whole rectangles of the rank at coords, with offsets in its local block; none includes
  /// padding, and ranks that do not hold an expert have none of it. The owner is the first of the
  /// ranks on x and y that hold the same elements.
  std::vector<Slice> slices(const GridShape& shape, const Coords& coords) const;

  /// Whether several ranks along the row axis hold the same elements, so that their gradients must
  /// be summed over that axis.
  bool shared(const GridShape& shape) const;

  /// Throws UsageError, with the parameter, the axis and valid extents, if the grid cannot cut it,
  /// and Error if segments or axes are wrong on any grid.
  void check(const std::string& name, const GridShape& shape) const;
};

/// The parts of `slices` in [begin, end) of the local buffer, with offsets counted from begin.
std::vector<Slice> clip(const std::vector<Slice>& slices, std::int64_t begin, std::int64_t end);

}  // namespace axonn
