#pragma once

#include <cstdint>

#include "axonn/plan/machine/machine.h"
#include "axonn/plan/simulate.h"
#include "axonn/train/config.h"

namespace axonn {

/// Predicts the time of one step of config's rank 0 on the machine.
///
/// Blocks are alike, and so are the micro-batches between the first and the last. So every figure
/// grows linearly with the blocks from the third on, and with the micro-batches from the second on.
/// Steps of three and four blocks and of two and three micro-batches are simulated, and the figures
/// extrapolated: this takes milliseconds, whatever the depth.
///
/// config must be validated and resolved and have a vocab; the machine must have the rates
/// (check_rates()). Throws UsageError if the grid cannot cut the model.
StepTime estimate_time(const Config& config, const Machine& machine);

/// The same with all blocks and at most three micro-batches simulated: takes tens of milliseconds.
/// It differs from estimate_time() if each block hides more of a collective, until all is hidden.
StepTime estimate_whole_depth(const Config& config, const Machine& machine);

/// The same without extrapolation: all blocks, all micro-batches.
StepTime simulate_whole_step(const Config& config, const Machine& machine);

/// The peak of the arena of config's rank 0, extrapolated over blocks. The peak is the largest of
/// several sums that grow linearly, and which one is the largest may change with the depth: then
/// the estimate is below exact_memory(), by at most the memory of one block.
std::int64_t estimate_memory(const Config& config);

/// The peak, to the byte, from a dry step of all blocks.
std::int64_t exact_memory(const Config& config);

/// a + weight · (b - a) for each figure; exposed seconds are at least 0.
StepTime extended(const StepTime& a, const StepTime& b, double weight);

}  // namespace axonn
