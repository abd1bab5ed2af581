#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/device/device_watchdog.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// Makes a group whose collectives on device memory are those of a library such as NCCL, on a
/// stream of the group. A collective begins after all work that is on this rank's compute stream
/// when it is called. Work::wait() makes the compute stream wait for it. The host waits for
/// neither. The watchdog watches all collectives, and aborts this rank's links when the world ends.
///
/// `link` is the world's link, which the ranks of host have made together; null if there is one
/// rank. It may not be ready yet. host and device must outlive the group. Collective.
std::unique_ptr<Communicator> make_linked(Communicator& host, Device& device,
                                          std::shared_ptr<DeviceLink> link,
                                          std::shared_ptr<DeviceWatchdog> watchdog);

}  // namespace axonn
