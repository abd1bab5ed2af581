#pragma once

#include <functional>
#include <string>

#include "axonn/comm/communicator.h"

namespace axonn {

struct MpiOptions {
  /// How long a rank waits for a collective before the watchdog names it and ends the world.
  double timeout_seconds = 600;
  /// Says why the world ended badly: called once, on one rank. Default: "error: REASON" on stderr.
  std::function<void(const std::string& reason)> report = {};
  /// For tests: every start and every finish of a collective is late by a random time up to this.
  int max_delay_us = 0;
};

/// Whether an MPI launcher (mpirun, mpiexec, srun with tasks) started this process. A shell inside
/// an allocation of Slurm is none.
bool under_launcher();

/// The same for other variables than this process's environment; null where one is not set.
bool under_launcher(const std::function<const char*(const char* name)>& variable);

/// Runs body on this process as one rank of the launcher's, and returns when all ranks have
/// returned. Once a process: MPI is initialised before body and finalised after it.
///
/// One progress thread a rank makes all MPI calls; it serves every group, makes the sums, and
/// sleeps between polls (20 us to 1 ms while something is in flight), so that computing threads
/// keep their cores. The world and its groups are used by one thread.
///
/// Does not return when a rank's body throws: the others' waits and calls throw Aborted, the lowest
/// rank that failed reports "rank R: MESSAGE", and the job ends by MPI_Abort with exit code 2 for a
/// UsageError, else 1. So too when the watchdog finds a collective that hangs.
///
/// Errors: UsageError where the library was built without MPI.
void run_mpi(const std::function<void(Communicator& world)>& body, const MpiOptions& options = {});

}  // namespace axonn
