#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

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

/// Extents of the axes, and the factors of z along which ranks share sequences and experts.
struct GridShape {
  int x = 1, y = 1, z = 1, data = 1;
  /// Divides z. Number of neighbours along z that compute the same sequences: each holds a part
  /// of the positions (context parallelism). Parameters are cut over all of z, whatever it is.
  int context = 1;
  /// Divides z. Number of neighbours along z that share the experts of each layer: each holds a
  /// part (expert parallelism). Independent of context.
  int experts = 1;

  int extent(Axis axis) const { return std::array{x, y, z, data}[static_cast<int>(axis)]; }
  int ranks() const { return x * y * z * data; }
  bool operator==(const GridShape&) const = default;
};

/// Writes the extents in the order x,y,z,data: "2,1,2,1"; not the factors of z.
std::string to_string(const GridShape& shape);
/// The factors of z that are not 1: " (context 2, experts 4)"; empty if both are 1.
std::string factors_text(const GridShape& shape);
/// Both: "2,1,4,1 (context 2, experts 4)".
std::string with_factors(const GridShape& shape);
/// Reads what to_string() writes. Throws UsageError unless the text is four positive integers
/// separated by commas.
GridShape parse_grid(std::string_view text);
/// Reads several grids, separated by spaces: "1,1,1,1 2,1,1,1".
std::vector<GridShape> parse_grids(const std::string& text);

/// Coordinates on the axes: 0 <= at(axis) < extent(axis).
struct Coords {
  std::array<int, 4> at_axis{};
  constexpr int at(Axis axis) const { return at_axis[static_cast<int>(axis)]; }
  bool operator==(const Coords&) const = default;
};

/// Coordinates of world rank r: x = r % Gx, y = r / Gx % Gy, z = r / (Gx Gy) % Gz, data = the rest.
Coords coords_of(const GridShape& shape, int rank);

/// Number of batch coordinates, each of which computes other sequences: those of (z, data), of
/// which `context` neighbours along z are one.
constexpr int batch_coordinates(const GridShape& shape) {
  return shape.z / shape.context * shape.data;
}
/// The number of a rank's batch coordinate: (data · Gz + z) / context.
constexpr int batch_coordinate(const GridShape& shape, const Coords& at) {
  return (at.at(Axis::data) * shape.z + at.at(Axis::z)) / shape.context;
}
/// Which part of its batch coordinate's sequences a rank holds: z mod context.
constexpr int context_part(const GridShape& shape, const Coords& at) {
  return at.at(Axis::z) % shape.context;
}
/// Which part of each layer's experts a rank holds: z mod experts.
constexpr int experts_part(const GridShape& shape, const Coords& at) {
  return at.at(Axis::z) % shape.experts;
}
/// Whether a rank reports for its batch coordinate, as exactly one does: it is 0 on x and y and has
/// part 0.
constexpr bool leads_batch_coordinate(const GridShape& shape, const Coords& at) {
  return at.at(Axis::x) == 0 && at.at(Axis::y) == 0 && context_part(shape, at) == 0;
}

/// The divisors of a positive number, ascending.
std::vector<int> divisors_of(int number);

/// All grids of this number of ranks, each once: its ordered factorisations into four.
std::vector<GridShape> grids_of(int ranks);

}  // namespace axonn
