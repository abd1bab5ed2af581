#pragma once

#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

struct BatchStage;

/// The batches of a run: those of training.batch_ramp or batch_stages, then global_batch. Throws
/// UsageError, with the key and the remedy, if one of the keys cannot be read.
std::vector<BatchStage> batch_stages(const TrainingConfig& training);

}  // namespace axonn
