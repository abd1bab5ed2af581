#pragma once

#include <functional>
#include <string>

#include "axonn/comm/communicator.h"
#include "axonn/plan/machine.h"

namespace axonn {

struct ProbeOptions {
  std::string name = "here";  ///< of the machine
  int threads = 1;            ///< compute threads of a rank
  int devices_per_node = 0;   ///< ranks that share a node; 0: those that name the same host
  bool quick = false;         ///< fewer and smaller sizes: seconds instead of a minute
  /// Told on rank 0, a line each: what is measured, and what came out.
  std::function<void(const std::string& line)> report = {};
};

/// Measures the machine that the ranks of world run on: what they compute, all at once, and what
/// the groups of their grids exchange. All ranks get the same Machine; it has what read_machine()
/// wants of a file. Collective.
/// Errors: UsageError for one rank alone, which has no links to measure, and for nodes of which
/// not all have as many ranks.
Machine probe(Communicator& world, const ProbeOptions& options);

}  // namespace axonn
