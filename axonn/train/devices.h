#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/ops/backend.h"
#include "axonn/train/config.h"

namespace axonn {

/// Makes this rank's backend for parallelism.device; auto is currently the CPU. Ranks of one host
/// take its GPUs in turn, in rank order. `threads` is the number of threads of the CPU backend.
/// Collective over world. Throws UsageError if there is no such device.
std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads);

/// Makes the communicator that exchanges the device's memory between the ranks of world, for the
/// transport of config; auto chooses NCCL if every rank has its own GPU. Otherwise, ranks that are
/// threads and whose GPUs reach each other's memory copy directly between the GPUs, and all others
/// copy through host memory. Returns null if the device's memory is host memory, which world itself
/// can send. Collective; world and device must outlive it. Throws UsageError if NCCL was asked for
/// and ranks share a GPU.
std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Device& device);

}  // namespace axonn
