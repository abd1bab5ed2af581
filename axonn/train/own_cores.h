#pragma once

#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"

namespace axonn {

/// The cores that a rank computes on. Ranks of one machine that may all run on the same cores, such
/// as threads of one process, divide these among them; ranks to which a launcher gave separate
/// cores keep those.
///
/// While it lives, the calling thread and every thread that it starts run only on the rank's share,
/// unless training.bind_cores is off, OpenMP was told where to run (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY), or the ranks have more compute threads than there are cores.
class OwnCores {
 public:
  /// Collective over world. Create, use and destroy it on the rank's own thread.
  OwnCores(const Config& config, Communicator& world);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

  /// Number of compute threads of this rank: training.threads, or the number of cores in its share.
  int threads() const { return threads_; }
  /// The cores that its threads are bound to, ascending; empty if they are not bound.
  const std::vector<int>& bound_to() const { return bound_to_; }

 private:
  int threads_ = 1;
  std::vector<int> before_, bound_to_;
};

}  // namespace axonn
