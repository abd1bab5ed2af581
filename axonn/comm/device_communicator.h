#pragma once

#include <memory>
#include <string>

#include "axonn/comm/checked.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// A group whose buffers may lie on a device: what is common to the transports that carry those.
/// Buffers in host memory, barriers and splits go to a group of the same ranks on the host.
class DeviceCommunicator : public CheckedCommunicator {
 public:
  /// Host and device outlive it.
  DeviceCommunicator(std::string name, Communicator& host, Device& device)
      : CheckedCommunicator(std::move(name), host.rank(), host.size()),
        host_(host),
        device_(device) {}
  /// It owns the host's group.
  DeviceCommunicator(std::string name, std::unique_ptr<Communicator> host, Device& device)
      : DeviceCommunicator(std::move(name), *host, device) {
    owned_ = std::move(host);
  }

  bool on_streams() const override { return size() == 1; }
  bool in_one_process() const override { return host_.in_one_process(); }
  void abort(const std::string& reason) noexcept override { host_.abort(reason); }
  std::string end_reason() const override { return host_.end_reason(); }
  void give_up(const std::string& reason) noexcept override { host_.give_up(reason); }
  double progress_seconds() const override { return host_.progress_seconds(); }

 protected:
  /// Starts a call on buffers of the device, in a group of more than one rank.
  virtual std::shared_ptr<Work::State> start_on_device(Call call) = 0;

  std::shared_ptr<Work::State> start(Call call) final;

  Communicator& host() { return host_; }
  Device& device() { return device_; }

 private:
  Communicator& host_;
  std::unique_ptr<Communicator> owned_;
  Device& device_;
};

/// A Work of another group as the state of one of this group's.
class HeldWork final : public Work::State {
 public:
  explicit HeldWork(Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() override { return work_.done(); }

 private:
  Work work_;
};

/// Makes the same call of another group of the same ranks.
Work forward(Communicator& group, const Call& call);

/// Buffers on the device are copied to the host, exchanged there, and copied back: for ranks that
/// share a card, and where there is no NCCL. The host waits for the device where a collective
/// starts, and for the others where it is waited for. Sums are the host transport's, in rank order.
///
/// host and device outlive the group.
std::unique_ptr<Communicator> make_staged(Communicator& host, Device& device);

}  // namespace axonn
