#pragma once

#include <functional>
#include <string>

#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

class Origins;

/// The run of what a user wrote: the sizes and files of model.path, prepared(), and the
/// recomputation that activation_checkpoint.budget asks for. Throws UsageError as
/// with_stored_model(), prepared() and within_budget().
PreparedRun prepare_run(const Config& config, const Origins& origins);

/// The run on which all ranks agree: the links of parallelism.machine choose its collectives, if
/// it is set, and rank 0's recomputation holds for all. Collective.
PreparedRun agree_on(const PreparedRun& run, Communicator& world);

/// Runs body once per rank: threads of this process or, under a launcher (mpirun, srun), its MPI
/// processes; with the run on which all ranks agreed. Throws as launch() (run/load/launch.h), and
/// what body throws, with the rank in front of the message.
void start_run(const PreparedRun& run,
               const std::function<void(const PreparedRun& agreed, Communicator& world)>& body);

/// Does the same, also with parallelism.grid = "auto": then one rank per GPU, or per
/// training.threads cores, or the launcher's ranks choose a grid: see with_chosen_grid(), which
/// uses report and progress.
void start_run_on_any_grid(
    const PreparedRun& run, const std::function<void(const std::string& line)>& report,
    const ProgressTarget& progress,
    const std::function<void(const PreparedRun& agreed, Communicator& world)>& body);

}  // namespace axonn
