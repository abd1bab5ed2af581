#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/device_watchdog.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// A group whose collectives on the device's memory are a library's, such as NCCL's, on a stream of
/// the group's: one begins when what this rank's compute stream was given so far is done, and
/// Work::wait() makes the compute stream wait for it; the host waits for neither. The watchdog sees
/// all of them, and ends this rank's links with the world.
///
/// link: of the world, made by the ranks of host together; null in a group of one. It may not be
/// ready. host and device outlive the group. Collective.
std::unique_ptr<Communicator> make_linked(Communicator& host, Device& device,
                                          std::shared_ptr<DeviceLink> link,
                                          std::shared_ptr<DeviceWatchdog> watchdog);

}  // namespace axonn
