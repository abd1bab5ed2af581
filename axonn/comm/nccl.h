#pragma once

#include <memory>
#include <string>

#include "axonn/comm/communicator.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// NCCL, or on AMD's cards RCCL, whose calls are the same, on the ranks of a group on the host,
/// which starts it up and carries what is not on the device. Every rank has a card of its own.
/// Collective.
///
/// A collective runs on a stream of its group's: it begins when what this rank's compute stream was
/// given so far is done, and Work::wait() makes the compute stream wait for it; the host waits for
/// neither. Sums are not in rank order: NCCL adds as it passes the values on, bf16 rounded at every
/// rank, so their bits depend on the grid and on NCCL's choice of algorithm; on the same grid they
/// are the same every time, and every rank gets the same.
///
/// A watchdog sees all collectives (comm/device_watchdog.h): one that is not done within the
/// timeout, or an error that NCCL reports by and by, ends the world.
///
/// host and device outlive the group. Errors: UsageError where two ranks share a card, or in a
/// build without cards; Error for what NCCL says.
std::unique_ptr<Communicator> make_nccl(Communicator& host, Device& device, double timeout_seconds);

/// "2.27.7", or "" in a build without cards.
std::string nccl_version();

/// Whether every rank of the group has a card that no other has. Collective.
bool have_own_cards(Communicator& host, const Device& device);

}  // namespace axonn
