#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/tensor/schedule.h"

namespace axonn {

/// What a collective asks of the links: it takes latency_s + link_s seconds if nothing shares the
/// links with it. Those that leave the node share the node's links.
struct CollectiveCost {
  double latency_s = 0, link_s = 0;
  bool leaves_node = false;
};

/// Seconds on one machine and grid.
class Costs {
 public:
  virtual ~Costs() = default;
  virtual double compute_s(const Schedule::Compute& operation) const = 0;
  virtual CollectiveCost collective(const Schedule::Start& start) const = 0;
  virtual double overlap_slowdown() const = 0;
  virtual double collective_slowdown() const { return 0; }
};

/// Where a step's time goes. step_s is compute_s plus all of exposed_s.
struct StepTime {
  double step_s = 0;
  double compute_s = 0;  ///< of the compute stream, slowed by what runs beside it
  std::map<std::string, double> compute_by;  ///< "products", "attention", "row-wise", "optimizer"
  std::map<std::string, double> exposed_by;  ///< "y all_reduce": what the compute stream waited for
  std::map<std::string, double> comm_by;     ///< the same keys: how long they were under way

  double exposed_s() const;
};

/// Plays the schedule: the compute stream in order; each collective on the stream of its group
/// and operation, in order; waits. It is played twice where a step leaves something to the next,
/// and the second counts. A collective that nobody waits for must be through when the step ends.
/// Errors: Error for a wait for what is no start.
StepTime simulate(const Schedule& schedule, const Costs& costs);

}  // namespace axonn
