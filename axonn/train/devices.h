#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/ops/backend.h"
#include "axonn/train/config.h"

namespace axonn {

/// The backend of this rank, as parallelism.device asks; auto is the processor for now. Ranks of
/// one host take its cards in turn, in the order of their ranks. `threads` are the CPU backend's.
/// Collective over world. Errors: UsageError where there is no such device.
std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads);

/// What carries the device's memory between the ranks of world, as its transport asks; auto takes
/// NCCL where every rank has a card of its own. Ranks that are threads, and whose cards reach each
/// other's memory, exchange on the cards; all others through the host's memory. Null where the
/// memory is the host's, which world carries itself. Collective; world and device outlive it.
/// Errors: UsageError where NCCL was asked for and ranks share a card.
std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Device& device);

}  // namespace axonn
