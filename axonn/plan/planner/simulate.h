#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/tensor/recording.h"

namespace axonn {

/// The cost of a collective: it takes latency_s + link_s seconds if no other shares its links.
/// Collectives that leave the node share the node's links. A disk's transfers have such costs, too.
struct CollectiveCost {
  double latency_s = 0, link_s = 0;
  bool leaves_node = false;
  double collectives = 1;  ///< that the program whose step is predicted starts for this one
};

/// How much longer, as a fraction, compute takes for each collective under way, and a collective
/// while the device computes.
struct Slowdowns {
  double of_compute = 0, of_collective = 0;
};

/// Seconds of operations and collectives on one machine and grid.
class Costs {
 public:
  virtual ~Costs() = default;
  virtual double compute_s(const Recording::Compute& operation) const = 0;
  virtual CollectiveCost collective(const Recording::Start& start) const = 0;
  /// The time that a rank is expected to wait for later ones in a part of a step with these
  /// seconds of computation and number of collectives.
  virtual double lateness_s(double /*computed_s*/, double /*collectives*/) const { return 0; }
  virtual Slowdowns slowdowns() const = 0;
};

/// The name in StepTime::exposed_by of the time that a rank waits for later ones.
inline constexpr const char* kLateRanks = "wait for late ranks";

/// The parts of a step's time: step_s is compute_s + exposed_s().
struct StepTime {
  double step_s = 0;
  double compute_s = 0;  ///< of the compute stream, with the slowdown by collectives
  std::map<std::string, double> compute_by;  ///< "products", "attention", "row-wise", "optimizer"
  /// Time that the compute stream waited: by "y all_reduce", and kLateRanks.
  std::map<std::string, double> exposed_by;
  std::map<std::string, double> late_by;   ///< kLateRanks, by the collective that is waited for
  std::map<std::string, double> comm_by;   ///< the same keys: time in flight
  std::map<std::string, double> alone_by;  ///< the same, if nothing slowed them

  double exposed_s() const;
};

/// Simulates the recording: operations in order on the compute stream, collectives in order on a
/// stream for each group and operation, and waits. A wait lasts until the collective is done, and
/// at least as long as late ranks need. A disk's transfers are like collectives, but nobody is late
/// for them, and they slow no compute. If a step leaves collectives to the next, two steps are
/// simulated and the second counts. The step also waits for collectives without a Wait. Throws if a
/// Wait does not refer to a Start.
StepTime simulate(const Recording& recording, const Costs& costs);

}  // namespace axonn
