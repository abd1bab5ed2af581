#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "axonn/comm/abort_flag.h"
#include "axonn/comm/threads/threads.h"
#include "axonn/comm/watch.h"

namespace axonn {

class ThreadGroup;

/// State shared by all ranks of run_ranks().
///
/// Locks are taken in this order: the world's, a group's, a rendezvous's.
class ThreadWorld {
 public:
  /// Creates a world. Use it instead of the constructor: it also sets the flag, which refers back
  /// to the world.
  static std::shared_ptr<ThreadWorld> create(int ranks, const ThreadsOptions& options);
  ThreadWorld(int ranks, const ThreadsOptions& options) : options_(options), states_(ranks) {}

  const ThreadsOptions& options() const { return options_; }
  const std::shared_ptr<AbortFlag>& flag() const { return flag_; }

  void add(ThreadGroup* group);
  void remove(ThreadGroup* group);

  /// Records a call that a rank starts, for the watchdog.
  void note(int rank, CallId id);
  /// Records that a rank's body has returned. Current and later waits for that rank throw Error.
  void note_returned(int rank);
  bool has_returned(int rank) const;
  CallId last_call(int rank) const;

  /// Sleeps a random time if the options request delays.
  void delay();

 private:
  struct RankState {
    mutable std::mutex mutex;
    CallId last;
    std::atomic<bool> returned = false;
  };

  void wake_all();

  ThreadsOptions options_;
  std::vector<RankState> states_;
  std::atomic<bool> any_returned_ = false;
  std::atomic<std::uint64_t> delays_ = 0;
  std::shared_ptr<AbortFlag> flag_;
  std::mutex mutex_;
  std::vector<ThreadGroup*> groups_;
};

}  // namespace axonn
