#pragma once

#include <cstdint>
#include <string>

#include "axonn/ranks/parallel/recompute.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// The blocks of [activation_checkpoint]. Throws UsageError, with the key and the names that there
/// are, if a value has another name.
RecomputedBlocks recomputed_blocks(const RecomputeConfig& config);

/// Sets mode, blocks, values and first_values so that recomputed_blocks() returns `blocks`.
void set_recomputed(RecomputeConfig& config, const RecomputedBlocks& blocks);

/// "3 blocks compute everything again, 5 norms and attention; 61.2 GiB at the peak of a step,
/// budget 64 GiB": the blocks of the config's model, and the budget if there is one.
std::string describe_recomputation(const Config& config);

/// The share of the blocks whose whole forward pass runs again in backward.
double fully_recomputed(const Config& config);

}  // namespace axonn
