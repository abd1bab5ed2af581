#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// The waits of a thread beside that of its rank. That thread may only wait for what is done, so it
/// polls, which no watchdog sees. When the rank's own thread waits for it, that one waits for its
/// messages in its place, so that a rank that hangs is found.
class WatchedWait {
 public:
  /// Before the thread starts.
  void begin() { ended_ = failed_ = false; }
  /// On the thread: returns when the work is done. Throws Aborted.
  void wait(Work& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    changed_.notify_all();
    while (work_ && !work.done()) changed_.wait_for(lock, std::chrono::microseconds(100));
    changed_.wait(lock, [&] { return !waits_; });
    work_ = nullptr;
    if (failed_) throw Aborted("the rank's own thread has failed");
    lock.unlock();
    work.wait();
  }
  /// On the thread: it will not wait again.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  /// On the rank's thread: returns after end(). Throws Error if a rank hangs, and Aborted.
  void follow() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || work_; });
      if (ended_) return;
      Work work = std::move(*std::exchange(work_, nullptr));
      waits_ = failed_ = true;
      lock.unlock();
      const Returned returned{*this, lock};
      work.wait();
      failed_ = false;
    }
  }

 private:
  /// Takes the lock again, and lets the thread go on.
  struct Returned {
    ~Returned() {
      lock.lock();
      wait.waits_ = false;
      wait.changed_.notify_all();
    }
    WatchedWait& wait;
    std::unique_lock<std::mutex>& lock;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  Work* work_ = nullptr;  // that the thread waits for
  bool waits_ = false;    // the rank's thread, for such a work
  bool failed_ = false, ended_ = true;
};

}  // namespace axonn
