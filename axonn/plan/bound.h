#pragma once

#include <cstdint>

#include "axonn/plan/machine/machine.h"
#include "axonn/train/config.h"

namespace axonn {

/// Optimistic figures of a run: about the least that it can take.
struct Optimistic {
  double seconds = 0;             ///< of a step
  std::int64_t memory_bytes = 0;  ///< estimate_memory() of a step of one micro-batch
};

/// Simulates a step of one micro-batch of config's size as if it held the whole batch, in the same
/// number of operations: work on rows takes as many times as long, while latencies and work on
/// parameters count once. Throws as estimate_time() does.
Optimistic optimistic(const Config& config, const Machine& machine);

/// Bytes of parameters, gradients and optimizer state of a rank of config's grid: a lower bound of
/// its memory. Computed from the sizes of flat buffers, without a dry step.
/// Throws UsageError if the grid cannot cut the model.
std::int64_t state_bytes(const Config& config);

}  // namespace axonn
