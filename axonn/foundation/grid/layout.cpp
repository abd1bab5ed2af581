#include "axonn/foundation/grid/layout.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

int ways_of(const GridShape& shape, std::optional<Axis> axis) {
  return axis ? shape.extent(*axis) : 1;
}

int place_of(const Coords& coords, std::optional<Axis> axis) { return axis ? coords.at(*axis) : 0; }

std::vector<Segment> segments_of(const Layout& layout) {
  if (!layout.segments.empty()) return layout.segments;
  return {Segment{.rows = layout.rows}};
}

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// Units for which each of `ways` coordinates reserves room.
std::int64_t room(const Segment& segment, int ways) {
  const std::int64_t units = segment.rows / segment.unit;
  if (segment.kind == Segment::Kind::shared) return shared_room(units, segment.readers, ways);
  return divided_up(units, ways);
}

UnitRange units_at(const Segment& segment, int ways, int at) {
  const std::int64_t units = segment.rows / segment.unit;
  if (segment.kind == Segment::Kind::shared) return shared_units(units, segment.readers, ways, at);
  const std::int64_t each = room(segment, ways), first = std::min(units, at * each);
  return {first, std::min(each, units - first)};
}

/// The number of units of coordinate `at` that the previous coordinate reads, too. The first
/// coordinate that reads a unit owns it.
std::int64_t units_taken(const Segment& segment, int ways, int at) {
  if (segment.kind != Segment::Kind::shared || at == 0) return 0;
  const UnitRange before = units_at(segment, ways, at - 1), mine = units_at(segment, ways, at);
  return std::clamp<std::int64_t>(before.first + before.count - mine.first, 0, mine.count);
}

/// Whether the range [begin, begin + count) lies in [0, size).
bool inside(std::int64_t begin, std::int64_t count, std::int64_t size) {
  return begin >= 0 && count >= 0 && count <= size && begin <= size - count;
}

/// The divisors of n up to a million, for messages: "1, 2, 3, 6".
std::string divisors_text(std::int64_t n) {
  std::string text;
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(n, 1 << 20); ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return text;
}

}  // namespace

bool lies_in(const Slice& slice, std::int64_t rows, std::int64_t cols) {
  return inside(slice.row, slice.rows, rows) && inside(slice.col, slice.cols, cols) &&
         slice.begin >= 0 && slice.begin <= slice.end && slice.end <= slice.rows * slice.cols;
}

UnitRange shared_units(std::int64_t units, std::int64_t readers, int ways, int at) {
  const std::int64_t group = readers / units, mine = divided_up(readers, ways),
                     begin = std::min(readers, at * mine), end = std::min(readers, begin + mine),
                     first = begin / group;
  return {first, begin == end ? 0 : divided_up(end, group) - first};
}

std::int64_t shared_room(std::int64_t units, std::int64_t readers, int ways) {
  const std::int64_t group = readers / units, mine = divided_up(readers, ways);
  std::int64_t most = 0;
  for (int at = 0; at < ways; ++at)
    most = std::max(most, divided_up((at + 1) * mine, group) - at * mine / group);
  return most;
}

std::int64_t Layout::local_rows(const GridShape& shape) const {
  std::int64_t sum = 0;
  for (const Segment& segment : segments_of(*this))
    sum += room(segment, ways_of(shape, row_axis)) * segment.unit;
  return sum;
}

std::int64_t Layout::local_cols(const GridShape& shape) const {
  const int ways = ways_of(shape, col_axis);
  return col_unit > 0 ? divided_up(cols / col_unit, ways) * col_unit : cols / ways;
}

std::int64_t Layout::cols_at(const GridShape& shape, const Coords& coords) const {
  const std::int64_t each = local_cols(shape);
  return std::clamp<std::int64_t>(cols - place_of(coords, col_axis) * each, 0, each);
}

bool Layout::even_cols(const GridShape& shape) const {
  return local_cols(shape) * ways_of(shape, col_axis) == cols;
}

std::vector<Slice> Layout::slices(const GridShape& shape, const Coords& coords) const {
  if (!held_at(shape, coords)) return {};
  const int ways = ways_of(shape, row_axis), at = place_of(coords, row_axis);
  const std::int64_t width = cols_at(shape, coords),
                     col = place_of(coords, col_axis) * local_cols(shape);
  bool first_of_same = true;
  for (Axis axis : {Axis::x, Axis::y})
    if (axis != row_axis && axis != col_axis && coords.at(axis) != 0) first_of_same = false;

  std::vector<Slice> out;
  std::int64_t global_row = 0, local_row = 0;
  const auto add = [&](const Segment& segment, UnitRange units, std::int64_t skip, bool owned) {
    if (units.count <= 0 || width == 0) return;
    const std::int64_t n = units.count * segment.unit;
    out.push_back({.row = global_row + units.first * segment.unit,
                   .rows = n,
                   .col = col,
                   .cols = width,
                   .begin = 0,
                   .end = n * width,
                   .offset = (local_row + skip * segment.unit) * width,
                   .owned = owned});
  };
  for (const Segment& segment : segments_of(*this)) {
    const UnitRange mine = units_at(segment, ways, at);
    const std::int64_t taken = units_taken(segment, ways, at);
    add(segment, {mine.first, taken}, 0, false);
    add(segment, {mine.first + taken, mine.count - taken}, taken, first_of_same);
    global_row += segment.rows;
    local_row += room(segment, ways) * segment.unit;
  }
  return out;
}

bool Layout::shared(const GridShape& shape) const {
  const int ways = ways_of(shape, row_axis);
  if (ways == 1) return false;
  return std::ranges::any_of(segments, [&](const Segment& segment) {
    for (int at = 1; at < ways; ++at)
      if (units_taken(segment, ways, at) > 0) return true;
    return false;
  });
}

void Layout::check(const std::string& name, const GridShape& shape) const {
  for (const auto& axis : {row_axis, col_axis})
    AXONN_CHECK(!axis || *axis == Axis::x || *axis == Axis::y, name, ": cut over ",
                axis ? name_of(*axis) : "",
                "; parameters are cut over x and y, and by their group "
                "over z and data");
  AXONN_CHECK(!row_axis || row_axis != col_axis, name, ": rows and columns are both cut over ",
              row_axis ? name_of(*row_axis) : "");
  std::int64_t total = 0;
  const int ways = ways_of(shape, row_axis);
  for (const Segment& segment : segments_of(*this)) {
    total += segment.rows;
    AXONN_CHECK(segment.unit > 0 && segment.rows % segment.unit == 0, name, ": a segment of ",
                segment.rows, " rows is not a multiple of its unit of ", segment.unit);
    const bool shared = segment.kind == Segment::Kind::shared;
    AXONN_CHECK(!shared || (segment.readers > 0 && segment.rows > 0), name,
                ": a shared segment of ", segment.rows, " rows has ", segment.readers,
                " readers, wanted at least 1");
    const std::int64_t units = segment.rows / segment.unit;
    AXONN_CHECK(!shared || segment.readers % units == 0, name, ": ", segment.readers,
                " readers of ", units, " units");
    if (segment.kind == Segment::Kind::even && units % ways != 0)
      refuse(name, ": ", units, segment.unit > 1 ? " heads" : " rows", " cannot be cut over ",
             name_of(*row_axis), " = ", ways, "; ", name_of(*row_axis), " must be one of ",
             divisors_text(units));
  }
  AXONN_CHECK(total == rows, name, ": segments add up to ", total, " rows, wanted ", rows);
  AXONN_CHECK(col_unit >= 0 && (col_unit == 0 || cols % col_unit == 0), name, ": ", cols,
              " columns are not a multiple of their unit of ", col_unit);
  if (col_unit == 0 && cols % ways_of(shape, col_axis) != 0)
    refuse(name, ": a width of ", cols, " cannot be cut over ", name_of(*col_axis), " = ",
           ways_of(shape, col_axis), "; ", name_of(*col_axis), " must be one of ",
           divisors_text(cols));
  if (expert && expert->of % shape.experts != 0)
    refuse("[parallelism] experts = ", shape.experts, " does not divide the ", expert->of,
           " experts of ", name, "; it must be one of ", divisors_text(expert->of));
}

std::vector<Slice> clip(const std::vector<Slice>& slices, std::int64_t begin, std::int64_t end) {
  std::vector<Slice> out;
  for (Slice slice : slices) {
    const std::int64_t from = std::max(begin, slice.offset),
                       to = std::min(end, slice.offset + slice.count());
    if (from >= to) continue;
    slice.end = slice.begin + (to - slice.offset);
    slice.begin += from - slice.offset;
    slice.offset = from - begin;
    out.push_back(slice);
  }
  return out;
}

}  // namespace axonn
