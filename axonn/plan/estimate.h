#pragma once

#include <cstdint>

#include "axonn/plan/machine.h"
#include "axonn/plan/simulate.h"
#include "axonn/train/config.h"

namespace axonn {

/// Seconds of one step of config's rank 0 on the machine.
///
/// Blocks are alike, and so are the micro-batches between the first and the last; so every figure
/// grows by the same from the third block on with each block, and from the second micro-batch on
/// with each micro-batch. It is simulated for three and four blocks, of two and three
/// micro-batches, and extended: milliseconds, whatever the depth.
///
/// config is validated and resolved, and has a vocab; machine has the rates (check_rates()).
/// Errors: UsageError where the grid cannot cut the model.
StepTime estimate_time(const Config& config, const Machine& machine);

/// The same with all blocks, and three micro-batches at most: tens of milliseconds. It differs from
/// estimate_time() where something is hidden better and better with each block, until it is hidden.
StepTime estimate_whole_depth(const Config& config, const Machine& machine);

/// The same without extending anything: all blocks, all micro-batches.
StepTime simulate_whole_step(const Config& config, const Machine& machine);

/// Peak of the arena of config's rank 0, extended in the same way. The peak is the largest of
/// several sums that grow evenly, and which one is the largest may change with the depth: below
/// exact_memory() by what one block holds, at most.
std::int64_t estimate_memory(const Config& config);

/// The peak, to the byte, from a dry step of all blocks.
std::int64_t exact_memory(const Config& config);

/// a + weight · (b - a), each figure for itself, but that nothing is exposed for less than no time.
StepTime extended(const StepTime& a, const StepTime& b, double weight);

}  // namespace axonn
