#pragma once

#include <memory>
#include <string>

#include "axonn/compute/tensor/arena.h"
#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/device/device_watchdog.h"

namespace axonn {

/// Refers to a group that outlives the result.
inline std::shared_ptr<Communicator> not_owned(Communicator& group) {
  return {std::shared_ptr<void>(), &group};
}

/// Base class of the transports for device memory. Calls on host memory, barriers and splits use a
/// host group of the same ranks.
class DeviceCommunicator : public Communicator {
 public:
  /// device must outlive it. The world's host group is not_owned().
  DeviceCommunicator(std::string name, std::shared_ptr<Communicator> host, Device& device)
      : Communicator(std::move(name), host->rank(), host->size()),
        host_(std::move(host)),
        device_(device) {
    set_policy(host_->policy());
  }

  bool on_streams() const override { return size() == 1; }
  bool in_one_process() const override { return host_->in_one_process(); }
  void abort(const std::string& reason) noexcept override { host_->abort(reason); }
  std::string end_reason() const override { return host_->end_reason(); }
  void give_up(const std::string& reason) noexcept override { host_->give_up(reason); }
  void note_progress() noexcept override { host_->note_progress(); }
  std::int64_t noted_progress() noexcept override { return host_->noted_progress(); }
  double progress_seconds() const override { return host_->progress_seconds(); }

 protected:
  /// Starts a call on device memory in a group of more than one rank.
  virtual std::shared_ptr<Work::State> start_on_device(Call call) = 0;

  std::shared_ptr<Work::State> start(Call call) final;

  void policy_changed() override { host_->set_policy(policy()); }

  Communicator& host() { return *host_; }
  Device& device() { return device_; }

 private:
  std::shared_ptr<Communicator> host_;
  Device& device_;
};

/// Whether no two ranks of the group share a GPU; false if there is none. Collective.
bool have_own_gpus(Communicator& host, const Device& device);

/// Makes a group that copies device buffers to the host, exchanges them there and copies the result
/// back. It is for ranks that share a GPU and for systems without NCCL. The host waits for the
/// device when a collective starts, and for the other ranks in Work::wait(). Sums are the host
/// transport's.
///
/// host and device must outlive the group.
std::unique_ptr<Communicator> make_staged(Communicator& host, Device& device);

/// The parts of which make_linked() makes a world.
struct LinkSetup {
  /// The world's link, which the ranks have made together; null if there is one rank. It may not be
  /// ready yet.
  std::shared_ptr<DeviceLink> link;
  /// Watches all collectives, and aborts this rank's links when the world ends.
  std::shared_ptr<DeviceWatchdog> watchdog;
  std::string host_name = {};  ///< for tests; empty: the system's
};

/// Makes a group whose collectives on device memory are those of a library such as NCCL, on a
/// stream of the group. A collective begins after all work that is on this rank's compute stream
/// when it is called. Work::wait() makes the compute stream wait for it. The host waits for
/// neither.
///
/// A group that fills several hosts with as many ranks each, one host after another, also has links
/// inside the host and across hosts, between ranks of the same index. With them it can do an
/// all_gather, a reduce_scatter, and a sum of a multiple of the host's ranks, in two levels
/// (set_policy()). For the first two it takes memory for about twice the larger buffer from the
/// arena, until Work::wait(); so does an all_to_all in place, for a copy.
///
/// host and arena must outlive the group. Collective.
std::unique_ptr<Communicator> make_linked(Communicator& host, Arena& arena, LinkSetup made_of);

}  // namespace axonn
