#pragma once

#include <memory>
#include <span>
#include <string>

#include "axonn/comm/call.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// A group's communicator in a library of device collectives, such as NCCL. Calls do not block:
/// what they begin is complete when ready() is true. Used by one thread at a time.
///
/// Throws Error with the library's message.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Begins to enqueue a collective on the stream.
  virtual void enqueue(const Call& call, Stream& stream) = 0;
  /// Begins to make a group of the ranks with this color, ordered by key. A rank with a negative
  /// color gets no group. Collective.
  virtual void begin_split(int color, int key) = 0;
  /// Returns the group that begin_split() made, after ready(); null if the color was negative. The
  /// group itself may not be ready yet.
  virtual std::shared_ptr<DeviceLink> take_split() = 0;

  /// Whether the host's part of what was begun is done. The stream may still be running it.
  virtual bool ready() = 0;
  /// The error that has occurred on the device or the network; empty if there is none.
  virtual std::string trouble() = 0;
};

/// The operations of such a library that a watchdog's thread needs.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;

  /// Selects, for the calling thread, the device of the rank that made this object.
  virtual void enter_thread() = 0;
  /// Aborts all links together, so that device work that waits for other ranks ends. It may block
  /// until the other ranks do the same. Afterwards only the links' destructors may be called.
  virtual void abort(std::span<const std::shared_ptr<DeviceLink>> links) noexcept = 0;
};

}  // namespace axonn
