#include "axonn/comm/grid.h"

#include <charconv>
#include <sstream>

#include "axonn/base/check.h"

namespace axonn {

std::string_view name_of(Axis axis) {
  constexpr std::string_view kNames[] = {"x", "y", "z", "data"};
  return kNames[static_cast<int>(axis)];
}

std::string names_of(AxisSet axes) {
  std::string names;
  for (Axis axis : kAxes)
    if (axes.has(axis)) names += (names.empty() ? "" : " and ") + std::string(name_of(axis));
  return names.empty() ? "no axis" : names;
}

std::string to_string(const GridShape& shape) {
  return concat(shape.x, ',', shape.y, ',', shape.z, ',', shape.data);
}

GridShape parse_grid(std::string_view text) {
  std::array<int, 4> extents{};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool good = true;
  for (int axis = 0; axis < 4 && good; ++axis) {
    if (axis > 0) good = at != end && *at++ == ',';
    while (good && at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, extents[axis]);
    good = good && error == std::errc{} && extents[axis] > 0;
    at = next;
  }
  const bool whole = good && at == end;
  if (!whole)
    refuse("a grid is four positive integers x,y,z,data, such as 2,1,2,1; got '", text, "'");
  const std::int64_t limit = 1 << 30;
  std::int64_t ranks = 1;
  for (int extent : extents)
    if ((ranks *= extent) > limit) refuse("grid '", text, "' has more than ", limit, " ranks");
  return {extents[0], extents[1], extents[2], extents[3]};
}

std::vector<GridShape> parse_grids(const std::string& text) {
  std::vector<GridShape> grids;
  std::istringstream words(text);
  for (std::string word; words >> word;) grids.push_back(parse_grid(word));
  return grids;
}

Coords coords_of(const GridShape& shape, int rank) {
  Coords coords;
  for (Axis axis : kAxes) {
    coords.at_axis[static_cast<int>(axis)] = rank % shape.extent(axis);
    rank /= shape.extent(axis);
  }
  return coords;
}

Grid::Grid(Communicator& world, GridShape shape) : world_(world), shape_(shape) {
  for (Axis axis : kAxes)
    if (shape.extent(axis) < 1) refuse("grid ", to_string(shape), " has an extent below 1");
  if (shape.ranks() != world.size())
    refuse("grid ", to_string(shape), " needs ", shape.ranks(), " ranks, but there are ",
           world.size(), "; start as many as it needs, or change [parallelism] x, y, z and data");
  coords_ = coords_of(shape, world.rank());
  int stride = 1;
  for (Axis axis : kAxes) {
    // Ranks that differ in this axis only get the same color: the rank that is 0 on this axis.
    const int color = world.rank() - coord(axis) * stride;
    groups_[static_cast<int>(axis)] = world.split(color, std::string(name_of(axis)));
    stride *= extent(axis);
  }
}

std::string Grid::describe() const {
  return concat("rank ", world_.rank(), " (x ", coord(Axis::x), ", y ", coord(Axis::y), ", z ",
                coord(Axis::z), ", data ", coord(Axis::data), ')');
}

}  // namespace axonn
