#pragma once

#include <functional>
#include <span>
#include <string>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

struct MpiOptions {
  /// How long a rank waits for a collective before the watchdog reports it and ends the world.
  double timeout_seconds = 600;
  /// Reports why the world was aborted; called once, on one rank. Default: prints "error: REASON"
  /// to stderr.
  std::function<void(const std::string& reason)> report = {};
  /// For tests: the name of a rank's host. Default: that of the system.
  std::function<std::string(int rank)> host_of = {};
  /// For tests: the start and the finish of every collective are delayed by a random time of at
  /// most this.
  int max_delay_us = 0;
  /// For tests: called with the bytes of each message that has arrived, before its checksum is
  /// compared.
  std::function<void(std::span<char> bytes)> on_arrival = {};
};

/// Runs body on this process as one rank of the launcher's job, and returns when the bodies of all
/// ranks have returned. Call it once per process: it initialises MPI before body and finalises it
/// afterwards.
///
/// One progress thread per rank makes all MPI calls, for all groups, and computes the sums. It
/// sleeps between polls (20 us to 1 ms while something is in flight), so that the compute threads
/// keep their cores. The world and its groups must be used by one thread. Another one may have a
/// group of its own if it waits for a Work only when that is done().
///
/// Does not return if a rank's body throws: the waits and calls of other ranks throw Aborted, the
/// lowest rank that failed reports "rank R: MESSAGE", and MPI_Abort ends the job with exit code 2
/// for a UsageError, otherwise 1. The same happens if the watchdog finds a collective that hangs.
///
/// Throws UsageError in a build without MPI.
void run_mpi(const std::function<void(Communicator& world)>& body, const MpiOptions& options = {});

/// The MPI library of this build in one line, or why there is none. Does not start MPI.
std::string mpi_version();

}  // namespace axonn
