#pragma once

#include <exception>
#include <functional>

#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/config.h"

namespace axonn {

struct CollectivePolicy;

/// Runs body once per rank of the grid, without a model: what runs one is started by start_run()
/// (app/start/start_run.h). Ranks are threads of this process or, under a launcher (mpirun, srun),
/// its MPI processes, unless parallelism.transport is threads or mpi.
/// Throws UsageError if the grid does not fit the launcher's ranks, if MPI has fewer ranks than the
/// launcher has started processes, or without MPI in the build, and Error if the grid is still a
/// name; and what body throws, with the rank in front of the message.
void launch(const ParallelismConfig& parallelism,
            const std::function<void(Communicator& world)>& body);

/// How collectives move data according to config; the rates are those of a common cluster.
CollectivePolicy policy_of(const ParallelismConfig& config);

/// Whether launch() would use MPI.
bool launches_mpi(const ParallelismConfig& parallelism);

/// Whether this process prints output that is the same in all processes of a launcher: it is the
/// launcher's first process, or there is no launcher.
bool speaks_for_all();

/// Under a launcher: one process prints this error for all, the job ends, and the function does not
/// return. Without a launcher or without MPI in the build: does nothing.
void end_launched(const std::exception_ptr& error);

}  // namespace axonn
