#pragma once

#include <cstdint>
#include <string>

#include "axonn/data/corpus/batch_stages.h"
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

/// The most sequences that so many batch coordinates can compute at a time in every step without
/// further padding: all of their share, unless batches change.
std::int64_t largest_micro_batch(const TrainingConfig& training, std::int64_t coordinates);

/// The micro-batches of each (z, data) coordinate in a step of global_batch sequences. The config
/// must be resolved.
std::int64_t micro_batch_count(const Config& config);

/// The sequences of padding that all coordinates together compute in such a step: those by which
/// its micro-batches hold more than global_batch.
std::int64_t padding_sequences(const Config& config);
/// " and 3 of padding"; empty if there are none.
std::string padding_text(const Config& config);

}  // namespace axonn
