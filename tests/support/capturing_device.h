#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/device/device_communicator.h"

namespace axonn::testing_support {

/// Emulates the graphs of a GPU on the CPU. During a capture, enqueued work is not run but recorded
/// with its addresses, and every launch runs it. Like CUDA, it refuses, during a capture, copies
/// between host and device and waits for work that was started outside of the capture. It also
/// refuses captures that leave collectives in flight. It counts how often the host waits for it.
class CapturingDevice final : public Device {
 public:
  std::string name() const override { return "capturing"; }

  void* allocate(std::int64_t bytes) override {
    void* memory = inner_->allocate(bytes);
    allocated_.emplace(static_cast<char*>(memory), static_cast<char*>(memory) + bytes);
    return memory;
  }
  void release(void* memory, std::int64_t bytes) noexcept override {
    allocated_.erase({static_cast<char*>(memory), static_cast<char*>(memory) + bytes});
    inner_->release(memory, bytes);
  }

  Stream& compute() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return inner_->make_stream(priority);
  }

  void copy(void* to, const void* from, std::int64_t bytes) override {
    enqueue([=, this] { inner_->copy(to, from, bytes); });
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    enqueue([=, this] { inner_->fill_zero(to, bytes); });
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    AXONN_CHECK(!capturing(), "copy_to_host during a capture");
    ++waits_;
    inner_->copy_to_host(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    AXONN_CHECK(!capturing(), "copy_from_host during a capture");
    inner_->copy_from_host(device, host, bytes);
  }

  bool holds(const void* memory) const override {
    for (const auto& [begin, end] : allocated_)
      if (memory >= begin && memory < end) return true;
    return false;
  }

  bool captures() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    AXONN_CHECK(!capturing(), "a capture during a capture");
    capture_ = ++captures_;
    Ended ended{capture_};
    under_way_ = 0;
    recorded_.clear();
    work();
    AXONN_CHECK(fault_.empty(), fault_);
    AXONN_CHECK(under_way_ == 0, "a capture leaves ", under_way_, " collectives in flight");
    return std::make_unique<Closures>(*this, std::exchange(recorded_, {}));
  }

  /// Runs the work now, or, during a capture, at every launch of the graph.
  void enqueue(std::function<void()> work) {
    if (capturing())
      recorded_.push_back(std::move(work));
    else
      work();
  }

  bool capturing() const override { return capture_ > 0; }
  /// How often the host has waited for the device.
  int waits() const { return waits_; }
  /// The number of launches so far.
  int launches() const { return launches_; }

  /// Records the start of a collective, which the compute stream must join. Returns the number of
  /// the current capture, for join().
  int start() {
    under_way_ += capturing() ? 1 : 0;
    return capture_;
  }
  /// Records that the compute stream waits for a collective; `started` is the result of start().
  /// Work destructors swallow the error, so the current or next capture throws it, too.
  void join(int started) {
    if (started != capture_)
      fault_ = concat("a wait in capture ", capture_, " for a collective of capture ", started,
                      " (0: no capture)");
    AXONN_CHECK(fault_.empty(), fault_);
    under_way_ -= capturing() ? 1 : 0;
  }

 private:
  class CountedStream final : public Stream {
   public:
    explicit CountedStream(CapturingDevice& device) : device_(device) {}
    std::unique_ptr<Event> record() override { return device_.inner_->compute().record(); }
    void wait(const Event&) override {}
    void synchronize() override { ++device_.waits_; }

   private:
    CapturingDevice& device_;
  };

  class Closures final : public Graph {
   public:
    Closures(CapturingDevice& device, std::vector<std::function<void()>> work)
        : device_(device), work_(std::move(work)) {}
    void launch() override {
      AXONN_CHECK(!device_.capturing(), "a launch during a capture");
      ++device_.launches_;
      for (const auto& one : work_) one();
    }

   private:
    CapturingDevice& device_;
    std::vector<std::function<void()>> work_;
  };

  struct Ended {
    int& capture;
    ~Ended() { capture = 0; }
  };

  std::unique_ptr<Device> inner_ = make_cpu_device();
  CountedStream stream_{*this};
  std::set<std::pair<char*, char*>> allocated_;
  std::vector<std::function<void()>> recorded_;
  int capture_ = 0;  // number of the current capture; 0: none
  int captures_ = 0, launches_ = 0, waits_ = 0, under_way_ = 0;
  std::string fault_;
};

/// The CPU backend on a CapturingDevice.
class CapturingBackend final : public ForwardingBackend {
 public:
  /// Captures leave out the operation `left_out`: a fault.
  explicit CapturingBackend(std::shared_ptr<CapturingDevice> device, std::string left_out = {})
      : ForwardingBackend(make_cpu_backend(1)),
        device_(std::move(device)),
        left_out_(std::move(left_out)) {}

  Device& device() override { return *device_; }
  Arena& arena() override { return arena_; }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    if (!device_->capturing() || call.name != left_out_) device_->enqueue(run);
  }

 private:
  std::shared_ptr<CapturingDevice> device_;
  Arena arena_{*device_};
  std::string left_out_;
};

/// Collectives that a CapturingDevice can capture. A launch runs each of them, to its end, at the
/// place where it was started.
class CapturingCommunicator final : public DeviceCommunicator {
 public:
  CapturingCommunicator(Communicator& host, CapturingDevice& device)
      : CapturingCommunicator("world", not_owned(host), device) {}
  CapturingCommunicator(std::string name, std::shared_ptr<Communicator> host,
                        CapturingDevice& device)
      : DeviceCommunicator(std::move(name), std::move(host), device), gpu_(device) {}

  bool on_streams() const override { return true; }
  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    auto part = host().split(color, name);
    return std::make_unique<CapturingCommunicator>(std::move(name), std::move(part), gpu_);
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    if (!gpu_.capturing())
      return std::make_shared<Started>(gpu_, Work(start_on(host(), std::move(call))));
    gpu_.enqueue([this, call] { Work(start_on(host(), call)).wait(); });
    return std::make_shared<Started>(gpu_, Work());
  }

 private:
  class Started final : public Work::State {
   public:
    Started(CapturingDevice& gpu, Work work)
        : gpu_(gpu), started_(gpu.start()), work_(std::move(work)) {}
    void wait() override {
      gpu_.join(started_);
      work_.wait();
    }
    bool done() override { return work_.done(); }

   private:
    CapturingDevice& gpu_;
    int started_;
    Work work_;
  };

  CapturingDevice& gpu_;
};

}  // namespace axonn::testing_support
