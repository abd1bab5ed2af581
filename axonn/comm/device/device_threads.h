#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/device/peer_work.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// Makes a group whose ranks, threads of one process, exchange device memory without the host. They
/// share one GPU, or have several GPUs that can access each other's memory.
///
/// A rank that starts a collective makes the same call on the host group, with the addresses of its
/// buffers on the device and an event, after which they may be read. The last rank to arrive
/// enqueues each rank's part of the work (part_of) on that rank's stream of the group, after all
/// these events, and records an event after all parts. Work::wait() makes the compute stream wait
/// for that event. So no rank touches a buffer that another rank still computes on or reads. In
/// Work::wait() the host waits until all ranks have arrived, by the host transport, whose watchdog
/// names missing ranks. It never waits for a device.
///
/// Sums have the same bits as the host transport's. host and device must outlive the group. Throws
/// Error if the ranks of host are not threads.
std::unique_ptr<Communicator> make_device_threads(Communicator& host, Device& device,
                                                  std::shared_ptr<PeerKernels> kernels);

}  // namespace axonn
