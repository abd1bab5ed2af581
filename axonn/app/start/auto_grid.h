#pragma once

#include <functional>
#include <string>

#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// Replaces the run's automatic grid by the planner's best grid for world's ranks, with the plan's
/// micro-batch, and with its recomputation if the run sets none. The plan is for
/// parallelism.machine, or for the result of a quick probe() by these ranks.
///
/// A run that resumes keeps the choice of the checkpoint's run if that had as many ranks. In any
/// case world then chooses its collectives by the machine's links.
///
/// Rank 0 chooses for all, and reports the choice and its reason. Collective.
/// Throws UsageError as RunFolder does, before anything slow, and if no grid of world's ranks cuts
/// the model or fits into memory. progress: shows on rank 0 how far measuring and the search are.
PreparedRun with_chosen_grid(const PreparedRun& run, Communicator& world,
                             const std::function<void(const std::string& line)>& report,
                             const ProgressTarget& progress = {});

}  // namespace axonn
