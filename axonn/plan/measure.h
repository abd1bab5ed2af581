#pragma once

#include <cstdint>

#include "axonn/comm/communicator.h"
#include "axonn/train/session.h"

namespace axonn {

struct MeasureOptions {
  int steps = 3;        ///< that are timed, one after another, at most; two are run before them
  double seconds = 60;  ///< that they are to take at most, unless one alone takes longer
};

/// What a few steps of a plan took here.
struct MeasuredSteps {
  double step_s = 0;              ///< median, of the slowest rank
  double waited_s = 0;            ///< of a step, that the mean rank waited for collectives
  NamedSeconds waited_by;         ///< the same by axis and kind ("z all_gather")
  std::int64_t memory_bytes = 0;  ///< the arena's peak on the fullest rank
};

/// Runs steps of config, which is validated and resolved and has a vocab, on tokens that mean
/// nothing, so that no data need be there. Collective.
/// Errors: UsageError where the grid cannot cut the model.
MeasuredSteps measure_steps(const Config& config, Communicator& world,
                            const MeasureOptions& options = {});

}  // namespace axonn
