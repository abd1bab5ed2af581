#include "axonn/comm/device/device_threads.h"

#include <array>
#include <exception>
#include <thread>

#include "axonn/base/check.h"
#include "axonn/comm/device/device_communicator.h"
#include "axonn/comm/device/peer_group.h"

namespace axonn {

namespace {

using Group = std::shared_ptr<PeerGroup>;

/// The group that all ranks of host share. Rank 0 makes it and broadcasts its address.
Group shared_group(Communicator& host, const std::string& name) {
  auto offered = std::make_unique<Group>();
  if (host.rank() == 0) *offered = std::make_shared<PeerGroup>(host.size(), name);
  auto address = reinterpret_cast<std::int64_t>(offered.get());
  host.broadcast(buffer(std::span(&address, 1)), 0, "device group").wait();
  const Group group = *reinterpret_cast<const Group*>(address);
  try {
    host.barrier("device group");
  } catch (...) {
    if (host.rank() == 0) offered.release();  // leaked, as others may still read it; the run ends
    throw;
  }
  return group;
}

/// State of a collective, whose wait lasts on the host until all ranks have arrived.
class PeerWait final : public Work::State {
 public:
  PeerWait(Communicator& host, Device& device, Group group)
      : host_(host), device_(device), group_(std::move(group)) {}

  /// Tells the other ranks, by a byte over the host group, that this rank has arrived.
  void start(const Call& call, std::shared_ptr<PeerMeeting> meeting) {
    meeting_ = std::move(meeting);
    const std::string label = describe(call);
    const Buffer here{byte_.data(), 1, DType::u8};
    if (call.operation == Operation::send) {
      arrived_ = host_.send(here, call.peer, label);
    } else if (call.operation == Operation::recv) {
      arrived_ = host_.recv(here, call.peer, label);
    } else {
      all_.resize(host_.size());
      arrived_ = host_.all_gather({all_.data(), std::ssize(all_), DType::u8}, here, label);
    }
  }

  void wait() override {
    try {
      arrived_.wait();
      const auto done = group_->done_of(*meeting_);
      if (!done) await_end();
      device_.compute().wait(*done);
    } catch (...) {
      leave_buffers();
      throw;
    }
  }
  bool done() override {
    if (!arrived_.done()) return false;
    const auto done = group_->done_of(*meeting_);
    return !done || done->done();
  }

 private:
  /// Waits for the abort of the world: a rank that had arrived has left with an error.
  [[noreturn]] void await_end() {
    host_.barrier("after a rank has left");
    throw Error("a rank left a group while other ranks wait for it in a collective");
  }

  /// Returns when no device uses the buffers any more, so that they may be freed.
  void leave_buffers() noexcept {
    try {
      const auto done = group_->forsake(*meeting_);
      while (done && !done->done()) std::this_thread::yield();
    } catch (const std::exception&) {  // the device has failed, so nothing runs on it any more
    }
  }

  Communicator& host_;
  Device& device_;
  Group group_;
  std::shared_ptr<PeerMeeting> meeting_;
  std::array<std::uint8_t, 1> byte_{};
  std::vector<std::uint8_t> all_;
  Work arrived_;  // last, so that it is destroyed before the bytes that it uses
};

class DeviceThreads final : public DeviceCommunicator {
 public:
  template <typename Host>
  DeviceThreads(std::string name, Host&& ranks, Device& on, std::shared_ptr<PeerKernels> kernels)
      : DeviceCommunicator(std::move(name), std::forward<Host>(ranks), on),
        kernels_(std::move(kernels)) {
    if (size() == 1) return;
    group_ = shared_group(host(), this->name());
    group_->join(rank(), kernels_, device().make_stream());
    host().barrier("device group");
  }

  ~DeviceThreads() override {
    if (!group_) return;
    const std::unique_ptr<Stream> stream = group_->leave(rank());
    try {
      stream->synchronize();           // finishes its work before the stream is destroyed
    } catch (const std::exception&) {  // the next use of the device reports it
    }
  }

  std::unique_ptr<Communicator> split_off(int color, std::string part_name) override {
    std::unique_ptr<Communicator> part = host().split(color, part_name);
    return std::make_unique<DeviceThreads>(std::move(part_name), std::move(part), device(),
                                           kernels_);
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    if (const std::string reason = end_reason(); !reason.empty()) throw Aborted(reason);
    auto work = std::make_shared<PeerWait>(host(), device(), group_);
    work->start(call, group_->arrive(rank(), call, device().compute().record()));
    return work;
  }

 private:
  std::shared_ptr<PeerKernels> kernels_;
  Group group_;
};

}  // namespace

std::unique_ptr<Communicator> make_device_threads(Communicator& host, Device& device,
                                                  std::shared_ptr<PeerKernels> kernels) {
  return std::make_unique<DeviceThreads>("world", host, device, std::move(kernels));
}

}  // namespace axonn
