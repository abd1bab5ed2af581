#pragma once

#include <cstdint>

#include "axonn/plan/machine.h"
#include "axonn/train/config.h"

namespace axonn {

/// What a run of a config takes at least.
struct Optimistic {
  double seconds = 0;             ///< of a step
  std::int64_t memory_bytes = 0;  ///< estimate_memory() of a step of one micro-batch
};

/// From a step of one micro-batch of config's size, as if all of the batch went through in one, in
/// the same number of operations: what belongs to rows takes as many times as long, latencies and
/// what belongs to parameters happen once. Errors: as estimate_time().
Optimistic optimistic(const Config& config, const Machine& machine);

/// Bytes of parameters, gradients and optimizer that a rank of config's grid holds at least,
/// without a dry step: from the sizes of its flat buffers.
/// Errors: UsageError where the grid cannot cut the model.
std::int64_t state_bytes(const Config& config);

}  // namespace axonn
