#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/attention_ways.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/comm/network_rules.h"
#include "axonn/run/config/config.h"

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

 private:
  int threads_ = 1;
  bool bound_ = false;
  std::vector<int> before_;  // the cores that this thread may use without it
};

/// The GPUs of this process that parallelism.device can mean: with auto, none that is emulated.
std::vector<CudaGpu> gpus_for(DeviceKind device);

/// This host's facts for the rules of networks (network_rules.h), for ranks on a GPU of this
/// name; for one host.
NetworkFacts network_facts(std::string gpu);

struct DeviceChoice {
  DeviceKind device = DeviceKind::cpu;  ///< never automatic
  std::string remark = {};  ///< why it is the CPU although some rank finds a GPU; "": it is not so
};

/// Returns the device that parallelism.device means for the ranks of world, the same on all of
/// them. auto is a GPU if each rank finds one that passes self_test(), otherwise the CPU. Ranks of
/// one host take its GPUs in turn, in rank order. Collective.
DeviceChoice choose_device(const Config& config, Communicator& world);

/// Adds to a CPU's backend the checks of operations that training.verify_... asks for, and those of
/// collectives to world and all groups split from it, while the backend exists.
std::unique_ptr<Backend> with_checks(std::unique_ptr<Backend> cpu, const TrainingConfig& training,
                                     int threads, Communicator& world);

/// Makes this rank's backend for the device that choose_device() would return; its take_remarks()
/// has the remark. `threads` is the number of threads of the CPU backend. Collective over world.
/// Throws UsageError if there is no such device.
std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads);

/// The rules by which attention runs on the GPUs of config; nothing if it has none. In a build
/// without them, those of an H100 with cuDNN, or of an AMD GPU.
std::optional<AttentionRules> planned_attention(const Config& config);

/// Makes the communicator that exchanges the memory of the arena's device between the ranks of
/// world, for the transport of config; auto chooses NCCL if every rank has its own GPU. Otherwise,
/// ranks that are threads and whose GPUs reach each other's memory copy directly between the GPUs,
/// and all others copy through host memory. Returns null if the device's memory is host memory,
/// which world itself can send. Collective; world and arena must outlive it. Throws UsageError if
/// NCCL was asked for and ranks share a GPU.
std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Arena& arena);

}  // namespace axonn
