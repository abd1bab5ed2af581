#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "axonn/comm/communicator.h"

namespace axonn {

struct ThreadsOptions {
  /// How long a rank waits for a collective before the watchdog names it and ends the world.
  double timeout_seconds = 600;
  /// Receives the watchdog's report at once, on the thread that waited. run_ranks itself cannot
  /// return before the rank that is missing does, which may be never: a program may end itself
  /// here.
  std::function<void(const std::string& report)> on_hang = {};
  /// For tests: every start and every finish of a collective is late by a random time up to this.
  int max_delay_us = 0;
  std::uint64_t delay_seed = 0;
};

/// Runs body once a rank, each on a thread of its own, and returns when all have returned.
///
/// The world and the groups split from it are used by their rank's thread alone, and do not outlive
/// body. There are no other threads: who waits for a collective that all ranks have started does
/// its work, sharing it with others who wait; nobody spins.
///
/// Errors: when a body throws, all other ranks' waits and calls throw Aborted, and run_ranks throws
/// the first error again, with its type (UsageError, Error) and "rank R: " before its message.
/// A rank that returns while others wait for it in a collective is an Error too, and so are calls
/// that do not match (each rank's is named).
void run_ranks(int ranks, const std::function<void(Communicator& world)>& body,
               const ThreadsOptions& options = {});

}  // namespace axonn
