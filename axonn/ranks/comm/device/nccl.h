#pragma once

#include <memory>
#include <string>

#include "axonn/compute/tensor/arena.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Makes a group that exchanges device memory by NCCL, or on AMD GPUs by RCCL, which has the same
/// calls. The host group of the same ranks starts NCCL and carries host memory. Every rank needs
/// its own GPU (have_own_gpus()). Collective.
///
/// Collectives run on a stream of their group, as with make_linked() (device_communicator.h). Sums
/// have no defined order: NCCL adds while it passes the values on and rounds bf16 at every rank, so
/// the bits depend on the grid and on NCCL's choice of algorithm. On the same grid they are the
/// same in every run, and all ranks get the same result.
///
/// A group that fills several hosts can work in two levels; the sums differ from flat ones in
/// their last bits. `host_name` is for tests.
///
/// A watchdog (comm/device/device_watchdog.h) ends the world if a collective is not done within the
/// timeout, or if NCCL reports an error later.
///
/// host and arena must outlive the group. Throws UsageError in a build without GPU support; Error
/// if NCCL reports one.
std::unique_ptr<Communicator> make_nccl(Communicator& host, Arena& arena, double timeout_seconds,
                                        const std::string& host_name = {});

/// The version of NCCL, such as "2.27.7"; empty in a build without GPU support.
std::string nccl_version();

}  // namespace axonn
