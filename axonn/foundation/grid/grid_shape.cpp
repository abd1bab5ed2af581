#include "axonn/foundation/grid/grid_shape.h"

#include <charconv>
#include <sstream>

#include "axonn/foundation/base/check.h"

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

std::string factors_text(const GridShape& shape) {
  std::string factors;
  for (const auto& [name, factor] :
       {std::pair{"context ", shape.context}, std::pair{"experts ", shape.experts}})
    if (factor > 1) factors += concat(factors.empty() ? " (" : ", ", name, factor);
  return factors + (factors.empty() ? "" : ")");
}

std::string with_factors(const GridShape& shape) { return to_string(shape) + factors_text(shape); }

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

std::vector<int> divisors_of(int number) {
  std::vector<int> small, large;
  for (int i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::vector<GridShape> grids_of(int ranks) {
  AXONN_CHECK(ranks > 0, "grids_of: got ", ranks, " ranks, wanted at least 1");
  std::vector<GridShape> grids;
  for (const int x : divisors_of(ranks))
    for (const int y : divisors_of(ranks / x))
      for (const int z : divisors_of(ranks / x / y))
        grids.push_back({.x = x, .y = y, .z = z, .data = ranks / x / y / z});
  return grids;
}

}  // namespace axonn
