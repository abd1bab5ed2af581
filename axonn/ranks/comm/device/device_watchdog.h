#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "axonn/compute/tensor/device.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/call.h"

namespace axonn {

/// A group's communicator in a library of device collectives, such as NCCL. Calls do not block:
/// what they begin is complete when ready() is true. Used by one thread at a time.
///
/// Throws Error with the library's message.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Begins to enqueue a collective on the stream. An all_to_all is not in place.
  virtual void enqueue(const Call& call, Stream& stream) = 0;
  /// A part of a group.
  struct Split {
    int color, key;
    int blocks = 0;  ///< of the GPU that its collectives have at most; 0: as the library chooses
  };
  /// Begins to make a group of the ranks with this color, ordered by key. A rank with a negative
  /// color gets no group. Collective.
  virtual void begin_split(const Split& split) = 0;
  /// Returns the group that begin_split() made, after ready(); null if the color was negative. The
  /// group itself may not be ready yet.
  virtual std::shared_ptr<DeviceLink> take_split() = 0;

  /// Enqueues out[j][i] = inp[i][j] for blocks of `bytes` bytes, of which inp has (rows, columns).
  struct Transpose {
    void* out = nullptr;
    const void* inp = nullptr;
    std::int64_t rows = 0, columns = 0, bytes = 0;
  };
  virtual void enqueue(const Transpose& transpose, Stream& stream) = 0;

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

/// Watches the collectives that one rank has started on its device, in all groups. If another rank
/// has died or makes different calls, their kernels would wait for it forever, and the host would
/// not notice.
///
/// A thread checks ten times a second, and at least 20 times within the timeout. It acts if a
/// collective is not done within the timeout, if the library or the device reports an error, or if
/// the world has ended elsewhere. The timeout counts from when the device could begin the
/// collective: the work that it waits for on this rank, and the group's earlier collectives, are
/// done. Time in which the process is stopped does not count, nor does the time until any rank last
/// noted progress (Communicator::note_progress()). The thread then, in this order,
/// aborts the host group with the reason, so that no rank uses what an interrupted collective left
/// in its buffers; aborts the links, so that the device's streams finish; and calls
/// Communicator::give_up() if the rank has not returned after the grace period.
class DeviceWatchdog {
 public:
  struct Options {
    double timeout_seconds = 600;
    /// How long a rank may take to return after its links were aborted.
    double grace_seconds = 30;
    /// The clock of timeout_seconds; tests replace it.
    std::function<double()> clock = now_seconds;
  };

  /// Construct and destroy it on the rank's thread. host is the world, and must outlive it.
  DeviceWatchdog(Communicator& host, std::unique_ptr<DeviceLibrary> library, Options options);
  ~DeviceWatchdog();
  DeviceWatchdog(const DeviceWatchdog&) = delete;
  DeviceWatchdog& operator=(const DeviceWatchdog&) = delete;

  /// Returns the lock that must be held while a link is used. Throws as check() does.
  std::unique_lock<std::mutex> hold();
  void add(std::shared_ptr<DeviceLink> link);
  /// Removes a link that the rank ends itself.
  void remove(const DeviceLink* link);

  struct Watched;
  struct State;
  /// An operation of the rank that may hang. It is watched until the Entry is destroyed, or, after
  /// on_device(), until `finished` is done, with the timeout counted from `ready`.
  class Entry {
   public:
    Entry(std::shared_ptr<State> state, std::shared_ptr<Watched> watched)
        : state_(std::move(state)), watched_(std::move(watched)) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
    void on_device(std::shared_ptr<const Event> ready, std::shared_ptr<const Event> finished);

   private:
    std::shared_ptr<State> state_;
    std::shared_ptr<Watched> watched_;
  };
  /// Begins to watch an operation. `what` describes it in messages.
  Entry begin(const std::string& group, std::string what);

  /// Ends the world and this rank's links with this reason. Returns at once.
  void abort(const std::string& reason) noexcept;
  /// Ends this rank's links only, because the rank is leaving with an error. Returns at once.
  void end_links() noexcept;
  /// Throws Aborted with the reason if the links are aborted or about to be.
  void check() const;

 private:
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace axonn
