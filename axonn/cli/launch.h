#pragma once

#include <exception>
#include <functional>

#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"

namespace axonn {

/// Runs body once a rank of config's grid: as threads of this process, or, where a launcher
/// (mpirun, srun) started it, as one of the launcher's MPI processes. parallelism.transport decides
/// where it is not auto.
/// Errors: UsageError where the grid does not fit the launcher's ranks, or MPI is not built in.
void launch(const Config& config, const std::function<void(Communicator& world)>& body);

/// Whether launch() would use MPI.
bool launches_mpi(const Config& config);

/// Whether this process prints what every process of a launcher would print alike: it is the
/// launcher's first, or there is no launcher.
bool speaks_for_all();

/// Under a launcher: ends its job with this error, which one process says for all that found it,
/// and does not return. Otherwise, and where MPI is not built in, does nothing.
void end_launched(const std::exception_ptr& error);

}  // namespace axonn
