#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "axonn/compute/tensor/device.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/device/peer_kernels.h"

namespace axonn::testing_support {

/// A GPU whose streams are queues. Work on them runs only while a thread waits for some of it:
/// until that is done, a randomly chosen stream continues, as far as events allow. So a missing
/// wait changes results for some seed. Shared by ranks that are threads.
class QueuedGpu {
 public:
  struct Options {
    std::uint64_t seed = 0;
    /// Whether to leave out the nth wait of a stream: a fault.
    std::function<bool(bool compute, int nth)> drops = {};
    /// Makes calls return only after a compute stream's work and waits are done, so that the host
    /// may read the results.
    bool host_waits = false;
  };
  explicit QueuedGpu(Options options) : options_(std::move(options)), random_(options_.seed, "") {}

  const Options& options() const { return options_; }

  /// Runs all work that can run.
  void finish() {
    const std::lock_guard lock(mutex_);
    while (go_on()) {
    }
  }

  struct Done {
    bool done = false;  // guarded by the GPU's mutex
  };
  struct Work {
    std::function<void()> run;          // work, or
    std::shared_ptr<const Done> after;  // a wait for this event
  };
  using Queue = std::deque<Work>;

  class QueuedEvent final : public Event {
   public:
    QueuedEvent(QueuedGpu& gpu, std::shared_ptr<const Done> state)
        : gpu_(gpu), state_(std::move(state)) {}
    bool done() const override {
      const std::lock_guard lock(gpu_.mutex_);
      gpu_.go_on();
      return state_->done;
    }
    const std::shared_ptr<const Done>& state() const { return state_; }

   private:
    QueuedGpu& gpu_;
    std::shared_ptr<const Done> state_;
  };

  class QueuedStream final : public Stream {
   public:
    QueuedStream(QueuedGpu& gpu, bool compute)
        : gpu_(gpu), compute_(compute), queue_(std::make_shared<Queue>()) {
      const std::lock_guard lock(gpu_.mutex_);
      gpu_.queues_.push_back(queue_);
    }
    ~QueuedStream() override {
      const std::lock_guard lock(gpu_.mutex_);
      std::erase(gpu_.queues_, queue_);
    }
    void push(Work work) {
      const std::lock_guard lock(gpu_.mutex_);
      queue_->push_back(std::move(work));
      gpu_.changed_.notify_all();
    }
    std::unique_ptr<Event> record() override {
      const auto state = std::make_shared<Done>();
      push({.run = [state] { state->done = true; }, .after = {}});
      return std::make_unique<QueuedEvent>(gpu_, state);
    }
    void wait(const Event& event) override {
      const int nth = waits_++;
      if (gpu_.options_.drops && gpu_.options_.drops(compute_, nth)) return;
      push({.run = {}, .after = static_cast<const QueuedEvent&>(event).state()});
      if (compute_ && gpu_.options_.host_waits) synchronize();
    }
    void synchronize() override { gpu_.drive(*queue_); }

   private:
    QueuedGpu& gpu_;
    bool compute_;
    std::atomic<int> waits_ = 0;
    std::shared_ptr<Queue> queue_;
  };

 private:
  /// Lets a random stream run one item; returns false if none can. It runs under the lock, so a
  /// missing wait changes results but is not a data race.
  bool go_on() {
    std::vector<Queue*> able;
    for (const auto& queue : queues_)
      if (!queue->empty() && (!queue->front().after || queue->front().after->done))
        able.push_back(queue.get());
    if (able.empty()) return false;
    // The same stream often runs again, so that it may get far ahead of the others.
    const bool again = std::ranges::count(able, last_) > 0 && random_.below(draws_++, 4) > 0;
    if (!again) last_ = able[random_.below(draws_++, able.size())];
    Work work = std::move(last_->front());
    last_->pop_front();
    if (work.run) work.run();
    changed_.notify_all();
    return true;
  }

  void drive(const Queue& until_empty) {
    std::unique_lock lock(mutex_);
    while (!until_empty.empty()) {
      if (go_on()) continue;
      const auto status = changed_.wait_for(lock, std::chrono::seconds(60));
      AXONN_CHECK(status == std::cv_status::no_timeout, "the GPU's streams wait for each other");
    }
  }

  Options options_;
  Random random_;
  std::uint64_t draws_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Queue>> queues_;
  Queue* last_ = nullptr;
};

/// One rank's device on a QueuedGpu. All memory counts as device memory.
class QueuedDevice final : public Device {
 public:
  explicit QueuedDevice(QueuedGpu& gpu) : gpu_(gpu), compute_(gpu, true) {}

  std::string name() const override { return "queued gpu"; }
  std::string uuid() const override { return "0123456789abcdef"; }
  void* allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory, std::int64_t bytes) noexcept override {
    inner_->release(memory, bytes);
  }
  Stream& compute() override { return compute_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override {
    return std::make_unique<QueuedGpu::QueuedStream>(gpu_, false);
  }
  /// Enqueues f on the compute stream.
  void run(std::function<void()> f) {
    compute_.push({.run = std::move(f), .after = {}});
    if (gpu_.options().host_waits) compute_.synchronize();
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    run([=] { std::memcpy(to, from, bytes); });
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    run([=] { std::memset(to, 0, bytes); });
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    copy(host, device, bytes);
    compute_.synchronize();
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    const auto* first = static_cast<const char*>(host);
    run([=, kept = std::vector<char>(first, first + bytes)] {
      std::memcpy(device, kept.data(), bytes);
    });
  }
  bool holds(const void*) const override { return true; }

 private:
  QueuedGpu& gpu_;
  QueuedGpu::QueuedStream compute_;
  std::unique_ptr<Device> inner_ = make_cpu_device();
};

/// Runs a GPU's kernel on the CPU: a few threads one after another, the last first.
inline void run_on_cpu(const PeerWork& work) {
  peer::with_kernel_of(work, [](const auto& kernel, std::int64_t) {
    constexpr int kThreads = 3;
    for (int thread = kThreads; thread-- > 0;) kernel(thread, kThreads);
  });
}

class QueuedKernels : public PeerKernels {
 public:
  void on_device(const std::function<void()>& f) override { f(); }
  void enqueue(Stream& stream, const PeerWork& work) override {
    static_cast<QueuedGpu::QueuedStream&>(stream).push(
        {.run = [work] { run_on_cpu(work); }, .after = {}});
  }
};

}  // namespace axonn::testing_support
