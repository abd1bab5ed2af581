#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/peer_work.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// Ranks that are threads of one process exchange what lies on their devices without the host: one
/// card that they share, or several that reach each other's memory.
///
/// A rank that starts a collective leaves its buffers' addresses and an event, after which they may
/// be read, with the group. The last rank to come puts each rank's part of the work (part_of) on
/// that rank's stream of the group, behind all ranks' events, and an event behind all parts;
/// Work::wait() makes the compute stream wait for that one. So nobody touches a buffer that another
/// rank still computes on or reads. The host waits in Work::wait() until all ranks have come, as
/// the host's transport has it (its watchdog names who has not), and never for a device.
///
/// Sums are the host transport's to the bit. host, device and what it computes with outlive the
/// group. Collective.
std::unique_ptr<Communicator> make_device_threads(Communicator& host, Device& device,
                                                  std::shared_ptr<PeerKernels> kernels);

}  // namespace axonn
