#pragma once

#include <cstdint>

#include "axonn/comm/communicator.h"
#include "axonn/comm/grid.h"
#include "axonn/train/training.h"

namespace axonn {

struct MeasureOptions {
  int steps = 3;        ///< timed steps at most; two more run before them
  double seconds = 60;  ///< about the most that they may take; one step runs in any case
};

/// Measured figures of a few steps of a plan.
struct MeasuredSteps {
  double step_s = 0;              ///< median, of the slowest rank
  double waited_s = 0;            ///< waiting for collectives in a step, mean over ranks
  NamedSeconds waited_by;         ///< the same by axis and kind ("z all_gather")
  std::int64_t memory_bytes = 0;  ///< the arena's peak, largest over ranks
};

/// Runs steps of config on arbitrary tokens, so that no data is needed. config must be validated
/// and resolved and have a vocab. Collective. Throws UsageError if the grid cannot cut the model.
MeasuredSteps measure_steps(const Config& config, Communicator& world,
                            const MeasureOptions& options = {});

}  // namespace axonn
