#pragma once

#include <limits>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"

namespace axonn::testing_support {

/// Simulates a step of the run without extrapolation: all blocks, all micro-batches.
inline StepTime simulate_whole_step(const PreparedRun& run, const Machine& machine) {
  const DryStep dry =
      dry_step(run, 0, {.recording = true, .most_micro_batches = std::numeric_limits<int>::max()});
  return simulate(dry.recording, MachineCosts(machine, run->parallelism.grid()));
}

}  // namespace axonn::testing_support
