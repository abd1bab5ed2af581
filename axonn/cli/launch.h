#pragma once

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

}  // namespace axonn
