#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "axonn/foundation/base/clock.h"

namespace axonn {

/// Counts the seconds in which this process runs. It stands still while the process is stopped
/// (SIGSTOP, Ctrl-Z, `scontrol suspend`): of the time between two readings, at most `longest`
/// seconds count. So it must be read at least that often.
class RunningClock {
 public:
  explicit RunningClock(double longest, std::function<double()> clock = now_seconds)
      : longest_(longest), clock_(std::move(clock)), read_at_(clock_()) {}

  /// Seconds that have counted so far.
  double now() {
    const double read = clock_();
    seconds_ += std::min(read - read_at_, longest_);
    read_at_ = read;
    return seconds_;
  }

 private:
  double longest_;
  std::function<double()> clock_;
  double read_at_, seconds_ = 0;
};

/// A wait with a time limit, cut into slices, of which a process that is stopped loses two. It is
/// over when, for the timeout, the same rank has held it up and has made no progress.
class Timeout {
 public:
  explicit Timeout(double timeout_seconds, std::function<double()> clock = now_seconds)
      : timeout_(timeout_seconds),
        slice_(std::min(timeout_seconds / 10, kLongestSlice)),
        next_look_(std::min(timeout_seconds / 10, kFirstLook)),
        clock_(2 * slice_, std::move(clock)) {}

  /// Seconds after which look_due() must be called again.
  double slice() const { return slice_; }

  /// Seconds waited so far while the process ran.
  double waited() { return clock_.now(); }

  /// Whether it is time to find out which rank holds the wait up: after 5, 10, 20, ... s, and at
  /// least ten times within the timeout. So its cost is small, however long the wait lasts.
  bool look_due() {
    const double now = clock_.now();
    if (now < next_look_) return false;
    next_look_ = std::min(2 * next_look_, now + timeout_ / 10);
    return true;
  }

  /// Notes what a look has found: the rank that holds the wait up, and a number that grows with
  /// its progress (-1: it gave no answer). Returns whether the wait is over.
  bool over(int rank, std::int64_t progress) {
    const double now = clock_.now();
    const bool known = rank_ >= 0, moved = progress >= 0 && progress != progress_;
    if (known && (rank != rank_ || moved)) since_ = now;
    if (rank != rank_ || moved) progress_ = progress;
    rank_ = rank;
    return now - since_ >= timeout_;
  }

 private:
  /// A wake-up a second costs nothing, and a stop of any length costs two seconds.
  static constexpr double kLongestSlice = 1;
  /// An early look finds a rank that has returned without the call long before the timeout.
  static constexpr double kFirstLook = 5;

  double timeout_, slice_, next_look_;
  RunningClock clock_;
  int rank_ = -1;
  std::int64_t progress_ = -1;
  double since_ = 0;
};

}  // namespace axonn
