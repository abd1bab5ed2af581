#pragma once

#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/plan/machine/probe.h"

namespace axonn {

/// The inputs of a part of a probe. Each part sets its figures of the machine, the same on all
/// ranks.
struct ProbeContext {
  Communicator& world;
  Backend& backend;
  const ProbeOptions& options;

  void report(const std::string& line) const {
    if (world.rank() == 0 && options.report) options.report(line);
  }
};

/// Measures row-wise operations and attention, within steps of small models that each rank runs
/// alone. Needs launch_s.
void probe_steps(const ProbeContext& ctx, Machine& machine);

/// Measures collectives of every group shape in grids of the world's ranks, all groups of a shape
/// at once, and the slowdowns of compute and collectives that overlap.
void probe_links(const ProbeContext& ctx, Machine& machine);

/// The mean over ranks of each value. Collective.
std::vector<double> mean_over_ranks(Communicator& world, std::vector<double> values);

/// Seconds per call of run, over as many calls as take about `seconds`, after one untimed call.
double seconds_of_one(Backend& backend, double seconds, const std::function<void()>& run);

}  // namespace axonn
