#pragma once

#include <string>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/optim/gradient_norms.h"
#include "axonn/run/optim/optimizer.h"

namespace axonn {

/// Results of a short run, the same on every rank.
struct GridTrace {
  GridShape grid;
  std::string device;                 ///< the backend's name: "cpu", "cuda"
  std::vector<double> losses, norms;  ///< one per step
  NamedNorms parameter_norms;         ///< gradient norms of the first step
  /// The first parameter whose replicas differ between ranks that should hold the same bits; "":
  /// none.
  std::string differing_replica;
};

struct TraceOptions {
  int steps = 1;
  RoutingRecord* record = nullptr;  ///< receives the choices of routers; null: none
  RoutingRecord* replay = nullptr;  ///< the choices that routers repeat; null: they choose
  ProgressTarget progress = {};
};

/// Runs the first steps of config on its grid, which must fit world. backend null: this rank's
/// device and cores as config says. Collective.
GridTrace trace_run(const PreparedRun& run, Communicator& world, std::unique_ptr<Backend> backend,
                    const TraceOptions& options);

/// Largest relative differences between two grids, which compute sums in different orders.
/// docs/correctness.md derives the values.
struct Tolerance {
  double loss, norm, parameter;
  /// Norms below this fraction of the largest are compared with it instead: they are zero in theory
  /// (such as a key bias's) or sums that nearly cancel, and rounding noise in practice.
  double floor;
};
Tolerance tolerance_of(DType dtype);
/// The tolerance between two devices, which also compute functions such as tanh differently.
Tolerance tolerance_between_devices(DType dtype);

/// Comparison of one grid with the reference.
struct GridComparison {
  GridShape grid;
  std::string device;
  double loss = 0, norm = 0, parameter = 0;  ///< largest relative differences
  int loss_step = -1;                        ///< first step, from 0, whose loss differs; -1: none
  std::string first_parameter;               ///< first that differs, in the model's order; "": none
  std::string differing_replica;
  bool agrees = true;
};
GridComparison compare(const GridTrace& reference, const GridTrace& other,
                       const Tolerance& tolerance);

/// Returns a table, with its first column for grid and device: one line per grid, followed by the
/// differences if it does not agree.
std::string comparison_table(const std::vector<GridComparison>& comparisons,
                             const Tolerance& tolerance);

}  // namespace axonn
