#pragma once

#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"

namespace axonn {

/// The part of a machine that a rank computes on. Ranks of one machine that may all run on the same
/// cores, as the threads of one process do, divide these; ranks to which a launcher gave cores of
/// their own keep them.
///
/// While it lives, the calling thread, and every thread that is started from it, runs on the rank's
/// share alone: unless training.bind_cores is off, OpenMP was told where to run (OMP_PROC_BIND,
/// OMP_PLACES, GOMP_CPU_AFFINITY), or the ranks compute on more threads than there are cores.
class OwnCores {
 public:
  /// Collective over world. Used, and destroyed, by the rank's own thread.
  OwnCores(const Config& config, Communicator& world);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

  /// The compute threads of this rank: training.threads, or as many as its share has cores.
  int threads() const { return threads_; }
  /// The cores that its threads are bound to, ascending; empty: they are not.
  const std::vector<int>& bound_to() const { return bound_to_; }

 private:
  int threads_ = 1;
  std::vector<int> before_, bound_to_;
};

}  // namespace axonn
