#pragma once

#include <memory>
#include <span>
#include <string>

#include "axonn/comm/call.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// One group's communicator of a library of collectives for devices, such as NCCL. Its calls do not
/// block: what they begin goes on until ready(). Used by one thread at a time.
///
/// Errors: Error with what the library says.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Begins to put a collective on the stream, where it is once ready().
  virtual void enqueue(const Call& call, Stream& stream) = 0;
  /// Begins to make a group of the ranks with this color, in the order of their keys; below 0:
  /// this rank will have none. Collective.
  virtual void begin_split(int color, int key) = 0;
  /// What begin_split() made, once ready(); null where the color was below 0. It may not be ready.
  virtual std::shared_ptr<DeviceLink> take_split() = 0;

  /// Whether everything that was begun is done, on the host: the stream may still be at work.
  virtual bool ready() = 0;
  /// What has gone wrong since it was made, on the device or the network; empty: nothing.
  virtual std::string trouble() = 0;
};

/// What a watchdog does with a library, from a thread of its own.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;

  /// The calling thread begins to work for the device of the rank that made the library.
  virtual void enter_thread() = 0;
  /// Ends all of them together, so that what waits on the device for other ranks ends. It may wait
  /// until the other ranks do the same. Nothing but their destructors is called afterwards.
  virtual void abort(std::span<const std::shared_ptr<DeviceLink>> links) noexcept = 0;
};

}  // namespace axonn
