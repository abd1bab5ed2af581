#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace axonn {

/// A point in a stream's work that another stream, or the host, can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
};

/// An ordered queue of a device's work. On a CPU work is done when its call returns, so every wait
/// is over before it begins.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  virtual void wait(const Event& event) = 0;  ///< later work here comes after the event
  virtual void synchronize() = 0;             ///< the host waits; never called inside a step
};

/// Work that was captured instead of done: the device keeps it, with the addresses that it was
/// given, and can do it again and again at the cost of one call.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;  ///< all of it is enqueued on the device's compute stream
};

/// One rank's device: raw memory, copies and streams. Used by its rank's thread alone.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  /// The same for all devices that share one card, in every process; "" where memory is the host's.
  virtual std::string uuid() const { return {}; }

  /// Memory for the arena, aligned to 4096 bytes. Errors: Error with the bytes asked for.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory, std::int64_t bytes) noexcept = 0;

  /// Compute runs on this stream; the operations below are enqueued on it.
  virtual Stream& compute() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;

  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void fill_zero(void* to, std::int64_t bytes) = 0;
  /// Returns when `host` holds the values: the host waits for the stream.
  virtual void copy_to_host(void* host, const void* device, std::int64_t bytes) = 0;
  /// Returns when `host` may be overwritten; the copy takes its turn on the stream.
  virtual void copy_from_host(void* device, const void* host, std::int64_t bytes) = 0;

  /// Whether the address is of memory that the host cannot read: what a collective that is handed
  /// it must leave to the device.
  virtual bool holds(const void* memory) const {
    (void)memory;
    return false;
  }

  /// Whether it has capture().
  virtual bool captures() const { return false; }
  /// What `work` enqueues on compute(), and on streams that wait for events of it, is captured and
  /// not done; the host's part of it is. Whatever it starts on other streams it waits for itself,
  /// and it waits for nothing that was started before. Copies between host and device are errors
  /// meanwhile: their addresses, or values, would be those of the capture for ever.
  /// Errors: Error if the device has no graphs, or for what cannot be captured.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work);
  /// Whether a capture is going on: its events can be waited for in it alone, and never be asked
  /// whether they are done.
  virtual bool capturing() const { return false; }
};

/// The processor: memory from the operating system, streams that are always done.
std::unique_ptr<Device> make_cpu_device();

}  // namespace axonn
