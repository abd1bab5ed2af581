#pragma once

#include <string>
#include <utility>
#include <vector>

#include "axonn/comm/grid.h"

namespace axonn {

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
