#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

struct ThreadsOptions {
  /// How long a rank waits for a collective before the watchdog reports it and ends the world.
  double timeout_seconds = 600;
  /// Called at once with the watchdog's report, on the thread that detected the hang. run_ranks()
  /// cannot return before the missing rank does, which may never happen; so a program may exit
  /// here.
  std::function<void(const std::string& report)> on_hang = {};
  /// For tests: the start of every collective, and each piece of its work, is delayed by a random
  /// time of at most this.
  int max_delay_us = 0;
  std::uint64_t delay_seed = 0;
};

/// Runs body on `ranks` ranks, each on its own thread, and returns when all have returned.
///
/// The world and the groups split from it are used by their rank's thread only, and must not
/// outlive body. Another one may have a group of its own if it waits for a Work only when that is
/// done(). There are no other threads: when all ranks have started a collective, the threads
/// that wait for it share its work. No thread spins.
///
/// If a body throws, the waits and calls of all other ranks throw Aborted, and run_ranks() rethrows
/// the first error with its type (UsageError or Error) and "rank R: " before its message. A rank
/// that returns while others wait for it in a collective is also an Error, and so are calls that do
/// not match, both of which the message names.
void run_ranks(int ranks, const std::function<void(Communicator& world)>& body,
               const ThreadsOptions& options = {});

}  // namespace axonn
