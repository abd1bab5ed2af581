#pragma once

#include <functional>
#include <string>

#include "axonn/foundation/base/log.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/config.h"

namespace axonn {

struct ProbeOptions {
  std::string name = "here";  ///< of the machine
  int threads = 1;            ///< compute threads of a rank
  DeviceKind device = DeviceKind::cpu;
  TransportKind transport = TransportKind::automatic;  ///< of GPU memory
  int devices_per_node = 0;  ///< ranks that share a node; 0: ranks with the same host name
  std::string disk = {};     ///< folder on a disk of each node, to measure for [offload]; "": none
  bool quick = false;        ///< fewer and smaller sizes: seconds instead of a minute
  /// Called on rank 0 with lines about measurements and their results.
  std::function<void(const std::string& line)> report = {};
  ProgressTarget progress = {};  ///< shows on rank 0 how many parts are measured
};

/// Measures the machine that the ranks of world run on: compute on all ranks at once, and
/// collectives of the groups of their grids, on GPUs those of GPU memory (make_device_world()). All
/// ranks get the same Machine, with all figures that read_machine() requires. Collective.
/// Throws UsageError for a single rank, which has no links to measure, and for nodes with different
/// numbers of ranks.
Machine probe(Communicator& world, const ProbeOptions& options);

}  // namespace axonn
