#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "axonn/base/clock.h"
#include "axonn/comm/communicator.h"
#include "axonn/comm/device_link.h"

namespace axonn {

/// Watches what one rank has started on its device, in all groups: kernels that wait there for
/// other ranks would wait for ever where one has died or makes other calls, and nobody on the host
/// would know.
///
/// A thread looks ten times a second. It ends the world if a collective is not done within the
/// timeout, counted from when the device could begin it (what it waits for on this rank is done,
/// and so are its group's earlier ones), if the library or the device reports an error, or if the
/// world has ended elsewhere. Then, in this order: the host's group hears the reason, so that no
/// rank goes on with what an interrupted collective left in its buffers; the links are aborted, so
/// that the device's streams end; and, if the rank has not come back after a while, the transport
/// hears that it may never do so (Communicator::give_up).
class DeviceWatchdog {
 public:
  struct Options {
    double timeout_seconds = 600;
    /// How long a rank whose links were aborted is given to come back.
    double grace_seconds = 30;
    /// The seconds that timeout_seconds is counted in; tests have a clock of their own.
    std::function<double()> clock = now_seconds;
  };

  /// Made and destroyed by the rank's thread. host: the world's, which outlives it.
  DeviceWatchdog(Communicator& host, std::unique_ptr<DeviceLibrary> library, Options options);
  ~DeviceWatchdog();
  DeviceWatchdog(const DeviceWatchdog&) = delete;
  DeviceWatchdog& operator=(const DeviceWatchdog&) = delete;

  /// Links may be used while this lock is held. Errors: Aborted, as check().
  std::unique_lock<std::mutex> hold();
  void add(std::shared_ptr<DeviceLink> link);
  /// The rank ends this link itself.
  void remove(const DeviceLink* link);

  struct Watched;
  struct State;
  /// Something that the rank does now and that may hang. It is watched until the entry's end, or,
  /// after on_device(), until `finished` is done, with time counted from `ready`.
  class Entry {
   public:
    Entry(std::shared_ptr<State> state, std::shared_ptr<Watched> watched);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
    void on_device(std::shared_ptr<const Event> ready, std::shared_ptr<const Event> finished);

   private:
    std::shared_ptr<State> state_;
    std::shared_ptr<Watched> watched_;
  };
  /// what: the call, as a report names it.
  Entry begin(const std::string& group, std::string what);

  /// Ends the world with this reason, and this rank's links; returns at once.
  void abort(const std::string& reason) noexcept;
  /// The rank is on its way out with an error: ends its links alone; returns at once.
  void end_links() noexcept;
  /// Throws Aborted with the reason once links are to be aborted.
  void check() const;

 private:
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace axonn
