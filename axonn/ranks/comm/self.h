#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Whether and why a world has ended; shared by all its groups. Thread-safe.
class AbortFlag {
 public:
  /// `wake` is called once, after the flag is set, to wake waiting threads. It must not throw.
  explicit AbortFlag(std::function<void()> wake = {}) : wake_(std::move(wake)) {}

  /// Sets the flag. The first reason wins; returns false for a later one.
  bool set(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (set_) return false;
      reason_ = reason;
      set_.store(true, std::memory_order_release);  // a thread that sees it must see the reason
    }
    if (wake_) wake_();
    return true;
  }

  /// Acquires what set() released: the reason. No order with other memory is needed, and waits ask
  /// often.
  explicit operator bool() const { return set_.load(std::memory_order_acquire); }

  /// Throws Aborted with the reason if the world has ended.
  void check() const {
    if (*this) throw Aborted(reason_);
  }

  /// The reason, or an empty string if the flag is not set.
  std::string reason() const { return *this ? reason_ : std::string(); }

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::atomic<bool> set_ = false;
  std::string reason_;  // constant after the flag is set
};

/// Makes a group of one rank within a larger world, with which it shares the abort flag. A
/// collective only copies inp to out if they differ.
std::unique_ptr<Communicator> make_self(
    std::string name = "self", std::shared_ptr<AbortFlag> flag = std::make_shared<AbortFlag>());

}  // namespace axonn
