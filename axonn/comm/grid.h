#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "axonn/comm/communicator.h"

namespace axonn {

/// An axis of the process grid. "Axis" is always the grid's word; a tensor has "dims".
enum class Axis : std::uint8_t { x, y, z, data };

inline constexpr std::array kAxes = {Axis::x, Axis::y, Axis::z, Axis::data};

std::string_view name_of(Axis axis);

/// A set of axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {}
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ |= bit(axis);
  }
  constexpr bool has(Axis axis) const { return bits_ & bit(axis); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return from(bits_ | other.bits_); }
  constexpr AxisSet without(AxisSet other) const { return from(bits_ & ~other.bits_); }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  static constexpr unsigned bit(Axis axis) { return 1u << static_cast<unsigned>(axis); }
  static constexpr AxisSet from(unsigned bits) {
    AxisSet set;
    set.bits_ = bits;
    return set;
  }
  unsigned bits_ = 0;
};

/// The names in words: "no axis", "y", "x and y".
std::string names_of(AxisSet axes);

/// Extents of the axes.
struct GridShape {
  int x = 1, y = 1, z = 1, data = 1;

  int extent(Axis axis) const { return std::array{x, y, z, data}[static_cast<int>(axis)]; }
  int ranks() const { return x * y * z * data; }
  bool operator==(const GridShape&) const = default;
};

/// Writes the extents in the order x,y,z,data: "2,1,2,1".
std::string to_string(const GridShape& shape);
/// Reads what to_string() writes. Throws UsageError unless the text is four positive integers
/// separated by commas.
GridShape parse_grid(std::string_view text);
/// Reads several grids, separated by spaces: "1,1,1,1 2,1,1,1".
std::vector<GridShape> parse_grids(const std::string& text);

/// Coordinates on the axes: 0 <= at(axis) < extent(axis).
struct Coords {
  std::array<int, 4> at_axis{};
  int at(Axis axis) const { return at_axis[static_cast<int>(axis)]; }
  bool operator==(const Coords&) const = default;
};

/// Coordinates of world rank r: x = r % Gx, y = r / Gx % Gy, z = r / (Gx Gy) % Gz, data = the rest.
Coords coords_of(const GridShape& shape, int rank);

/// The process grid: this rank's coordinates, and its communicators along the axes.
///
/// x, the axis of the largest messages, is innermost, so it stays within a node. Grid 2,2,1,2:
///
///   rank    0 1 2 3 4 5 6 7      x groups  {0,1} {2,3} {4,5} {6,7}
///   x       0 1 0 1 0 1 0 1      y groups  {0,2} {1,3} {4,6} {5,7}
///   y       0 0 1 1 0 0 1 1      z groups  one rank each
///   data    0 0 0 0 1 1 1 1      data      {0,4} {1,5} {2,6} {3,7}
class Grid {
 public:
  /// Collective over world, which must outlive the grid. Throws UsageError if the product of the
  /// extents is not world.size().
  Grid(Communicator& world, GridShape shape);

  const GridShape& shape() const { return shape_; }
  const Coords& coords() const { return coords_; }
  int extent(Axis axis) const { return shape_.extent(axis); }
  int coord(Axis axis) const { return coords_.at(axis); }

  /// The group of ranks that differ from this one only in `axis`, ordered by it.
  Communicator& along(Axis axis) const { return *groups_[static_cast<int>(axis)]; }
  Communicator& world() const { return world_; }

  /// Describes this rank: "rank 5 (x 1, y 0, z 1, data 0)".
  std::string describe() const;

 private:
  Communicator& world_;
  GridShape shape_;
  Coords coords_;
  std::array<std::unique_ptr<Communicator>, 4> groups_;
};

}  // namespace axonn
