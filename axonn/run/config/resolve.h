#pragma once

#include <cstdint>

#include "axonn/run/config/config.h"

namespace axonn {

/// Returns the config with every value filled in that follows from others (kv_heads, ffn,
/// positions, micro_batch, decay_steps), and a named grid as x, y, z and data. vocab stays as it
/// is, since only the tokenizer knows it, and so do steps if the config has epochs. Call it after
/// validate(). The run stays the same.
Config resolved(Config config);

/// Returns a resolved config with the number of steps that its epochs are. Throws UsageError if
/// other keys contradict it.
Config with_steps(Config config, std::int64_t steps);

/// Returns the config with x, y, z and data taken from the named grid, if one is named.
Config with_named_grid(Config config);

/// The most sequences that `places` coordinates can compute at a time in every step: all of their
/// share, unless batches change.
std::int64_t largest_micro_batch(const TrainingConfig& training, std::int64_t places);

}  // namespace axonn
