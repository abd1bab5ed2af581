#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

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
  /// extents is not world.size(), or context or experts does not divide z.
  Grid(Communicator& world, GridShape shape);

  const GridShape& shape() const { return shape_; }
  const Coords& coords() const { return coords_; }
  int extent(Axis axis) const { return shape_.extent(axis); }
  int coord(Axis axis) const { return coords_.at(axis); }
  /// As the functions of grid_shape.h, of this grid and this rank.
  int batch_coordinates() const { return axonn::batch_coordinates(shape_); }
  int batch_coordinate() const { return axonn::batch_coordinate(shape_, coords_); }
  bool leads_batch_coordinate() const { return axonn::leads_batch_coordinate(shape_, coords_); }

  /// The group of ranks that differ from this one only in `axis`, ordered by it.
  Communicator& along(Axis axis) const { return *groups_[static_cast<int>(axis)]; }
  /// The group of the ranks that share this one's sequences, ordered by z: shape().context
  /// neighbours along z. Throws Error if that is 1.
  Communicator& context() const { return shared(context_, "context"); }
  /// The group of the ranks that share the experts of each layer, ordered by z: shape().experts
  /// neighbours along z. Throws Error if that is 1.
  Communicator& experts() const { return shared(experts_, "experts"); }
  /// The group of the ranks along z that hold the same experts as this one, ordered by z.
  Communicator& same_experts() const { return same_experts_ ? *same_experts_ : along(Axis::z); }
  Communicator& world() const { return world_; }

  /// Describes this rank: "rank 5 (x 1, y 0, z 1, data 0)".
  std::string describe() const;

 private:
  static Communicator& shared(const std::unique_ptr<Communicator>& group, const char* factor) {
    AXONN_CHECK(group, "the grid has no group of ranks that share ", factor, ": ", factor, " is 1");
    return *group;
  }

  Communicator& world_;
  GridShape shape_;
  Coords coords_;
  std::array<std::unique_ptr<Communicator>, 4> groups_;
  std::unique_ptr<Communicator> context_;                 // null if shape().context is 1
  std::unique_ptr<Communicator> experts_, same_experts_;  // null if shape().experts is 1
};

using NamedSeconds = std::vector<std::pair<std::string, double>>;

/// Measures how long this rank's compute waits for collectives, by axis and kind.
class WaitClock {
 public:
  /// Starts now.
  explicit WaitClock(const Grid& grid) : grid_(&grid) { restart(); }
  void restart() { start_ = so_far(); }

  /// Seconds since the start of every kind ("z all_gather"), also of those without any, in an order
  /// that is the same on every rank.
  NamedSeconds by_kind() const;
  /// Their sum.
  double seconds() const;

 private:
  NamedSeconds so_far() const;

  const Grid* grid_;
  NamedSeconds start_;
};

/// The mean over the ranks of world of their seconds divided by `steps`, without kinds of 0 s.
/// Collective.
NamedSeconds mean_waits(Communicator& world, const NamedSeconds& seconds, double steps);

}  // namespace axonn
