#pragma once

#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/plan/probe.h"

namespace axonn {

/// What a part of a probe is given. Each sets its figures of the machine, the same on all ranks.
struct ProbeContext {
  Communicator& world;
  Backend& backend;
  const ProbeOptions& options;

  void report(const std::string& line) const {
    if (world.rank() == 0 && options.report) options.report(line);
  }
};

/// The launch, and memory's rate: additions of small and of large arrays.
void probe_memory(const ProbeContext& ctx, Machine& machine);

/// The products' rates, over shapes, transposition and types.
void probe_products(const ProbeContext& ctx, Machine& machine);

/// What works row by row, and attention: every operation of steps of small models, each rank by
/// itself, as they come in a step. Needs the launch.
void probe_steps(const ProbeContext& ctx, Machine& machine);

/// Collectives of every group shape that grids of the world's ranks have, all groups of a shape at
/// once, and how much slower a rank computes under one.
void probe_links(const ProbeContext& ctx, Machine& machine);

/// The mean over ranks, each value for itself. Collective.
std::vector<double> mean_over_ranks(Communicator& world, std::vector<double> values);

/// Seconds of one call of run, over as many as take about `seconds`, after one that is not timed.
double seconds_of_one(Backend& backend, double seconds, const std::function<void()>& run);

}  // namespace axonn
