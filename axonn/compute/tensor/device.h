#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

class Moment;
struct Recording;

/// Kinds of operations of Backend or Device by what bounds their time.
enum class OperationKind {
  product,
  attention,
  rowwise,  ///< memory traffic, in proportion to the rows of the batch
  update,   ///< memory traffic; it belongs to the update of the parameters
  device    ///< memory traffic of a Device's copy or fill
};

/// A device has no memory of the requested size; what() has the bytes.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A point in a stream's work that another stream, or the host, can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
};

/// An ordered queue of a device's work. On a CPU, work is done when its call returns, so waits
/// return at once.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  virtual void wait(const Event& event) = 0;  ///< later work on this stream runs after the event
  virtual void synchronize() = 0;             ///< the host waits; never called inside a step
};

/// The stream of a device that does all work when it is called.
class IdleStream : public Stream {
 public:
  std::unique_ptr<Event> record() override;
  void wait(const Event&) override {}
  void synchronize() override {}
};

/// A handle of a collective that may be in flight. Move-only.
///
/// wait() makes the compute stream wait for the collective (on a CPU, the calling thread). The
/// destructor waits too, so no buffer is freed while the collective uses it. An empty Work is done.
/// wait() throws Error if the collective failed or the world was aborted; the destructor does not.
class Work {
 public:
  /// A collective's state; every transport implements it.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() = 0;
    /// Where wait() waits now: on the host, or an event in the compute stream's work.
    virtual Moment moment();
    /// When a device began and ended the collective, if it noted that.
    virtual std::optional<std::pair<Moment, Moment>> span();
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept {
    finish();
    state_ = std::move(other.state_);
    kept_ = std::move(other.kept_);
    return *this;
  }
  ~Work() { finish(); }

  void wait() {
    if (!state_) return;
    const auto state = std::move(state_);
    const auto kept = std::move(kept_);
    state->wait();
  }

  bool done() const { return !state_ || state_->done(); }

  /// Keeps a buffer's owner alive until wait() returns.
  void keep(std::shared_ptr<void> buffer) { kept_ = std::move(buffer); }

 private:
  void finish() noexcept {
    try {
      wait();
    } catch (...) {  // explicit calls of wait() report errors
    }
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<void> kept_;
};

/// The importance of a stream: of streams whose work is ready, a device prefers `high`.
/// From a file to memory, or back.
enum class FileTransfer : std::uint8_t { read, write };

enum class StreamPriority {
  normal,
  high  ///< other ranks wait for its work
};

/// A graph of captured work with fixed addresses. The device can run it many times, each time at
/// the cost of one call.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;  ///< enqueues all of its work on the device's compute stream
};

/// The size of operations that suits a device: a GPU is idle in part unless an operation has
/// millions of elements, and has memory for their results.
enum class OperationSize { moderate, large };

/// Where the values of a device's memory are.
enum class Memory : std::uint8_t {
  host,  ///< code of the host may read and write them
  gpu,   ///< in memory that only a GPU and the copies of its Device access
  none,  ///< nowhere: addresses stand for memory whose bytes are only counted
};

/// One rank's device: raw memory, copies and streams. Used by its rank's thread only.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  /// Identifies the GPU: the same for all devices on one GPU, in every process. Empty for a device
  /// without memory of its own.
  virtual std::string uuid() const { return {}; }

  /// Where a layer may cut its work into operations, it does so by this.
  virtual OperationSize operation_size() const { return OperationSize::moderate; }

  /// Bytes to which blocks of its memory are aligned, at most what allocate() gives: a cache line,
  /// or on GPUs what libraries expect of their operands and workspaces.
  virtual std::int64_t alignment() const {
    return operation_size() == OperationSize::large ? 256 : 64;
  }

  virtual Memory memory() const { return Memory::host; }
  /// Whether it keeps values. If not, as in dry runs and plans, no value that is copied to it is
  /// ever used, and copies to the host give zeros.
  bool keeps_values() const { return memory() != Memory::none; }

  /// Allocates memory for the arena, aligned for every type and kernel (to 256 bytes on GPUs, a
  /// page elsewhere). Throws OutOfMemory if there is none of that size.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory, std::int64_t bytes) noexcept = 0;

  /// The compute stream. The copies and fills below are enqueued on it.
  virtual Stream& compute() = 0;
  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;

  /// The moment at which the work that is on the stream now is done; of a CPU now. The host does
  /// not wait. While the device captures it has no meaning, and is always the same.
  virtual Moment moment(Stream& stream);

  /// So many more of a GPU's multiprocessors are in use beside the operations that follow on the
  /// compute stream, by collectives in flight; less if `count` is negative.
  void lend(int count) { lent_ += count; }
  /// How many are in use so now.
  int lent() const { return lent_; }

  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void fill_zero(void* to, std::int64_t bytes) = 0;
  /// Waits for the stream; when it returns, `host` holds the values.
  virtual void copy_to_host(void* host, const void* device, std::int64_t bytes) = 0;
  /// Enqueues the copy; when it returns, `host` may be overwritten.
  virtual void copy_from_host(void* device, const void* host, std::int64_t bytes) = 0;

  /// Whether an address is in memory that the host cannot access, so that collectives on it must
  /// go through the device.
  virtual bool holds(const void*) const { return false; }

  /// Whether capture() is implemented.
  virtual bool captures() const { return false; }
  /// Calls `work` and captures, instead of running, what it enqueues on compute() and on streams
  /// that wait for events of compute(). The host code of `work` runs as usual. compute() must wait
  /// for everything that `work` starts on other streams, and `work` must not wait for anything that
  /// was started before. Copies between host and device throw: the graph would keep the addresses,
  /// or values, of the capture forever.
  /// Throws Error if the device cannot capture graphs, or `work` contains something that cannot be
  /// captured.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work);
  /// Whether a capture is in progress. Only the capture itself may wait for events that are
  /// recorded during it, and nothing may call done() on them.
  virtual bool capturing() const { return false; }
  /// Whether it has ever captured: graphs may use memory that is free otherwise.
  virtual bool has_captured() const { return false; }

  /// So many bytes go between memory and a file (Arena::offload). Does nothing where a system moves
  /// them by itself; a dry device adds it to its recording. What is written is not waited for.
  virtual Work transfer(FileTransfer, std::int64_t /*bytes*/) { return {}; }

 private:
  int lent_ = 0;
};

/// The CPU: memory from the operating system, streams that are always idle.
std::unique_ptr<Device> make_cpu_device();

/// A device without memory. It returns a new address for each allocation, which must not be
/// accessed. Copies move nothing, and copies to the host give zeros. An arena on it counts the same
/// bytes as on a real device of the same operation_size(), so a dry run shows the memory of a step
/// of any size.
///
/// Copies, fills and transfers are added to the recording, if one is given. It must outlive the
/// device.
std::unique_ptr<Device> make_dry_device(Recording* recording = nullptr,
                                        OperationSize size = OperationSize::moderate);

}  // namespace axonn
