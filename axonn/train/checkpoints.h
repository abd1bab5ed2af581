#pragma once

#include <cstdint>
#include <string>

#include "axonn/train/loaded_model.h"
#include "axonn/train/optimizer.h"

namespace axonn {

/// Saves a checkpoint of parameters and optimizer state as DIR/step-N, and returns when it is
/// written. `folder` is DIR; steps_done, N, is the number of steps that the model was trained for.
/// Collective. Throws Error, the same on all ranks, if a file cannot be written; checkpoints in DIR
/// stay.
void save_checkpoint(const LoadedModel& model, const OptimizerState& optimizer,
                     const std::string& folder, std::int64_t steps_done);

/// Loads parameters and optimizer state from the checkpoint at path, which a grid of any shape may
/// have written: a folder DIR/step-N, or DIR for the newest valid checkpoint in it. Returns the
/// number of steps that it was trained for. Collective. Throws UsageError, the same on all ranks,
/// if there is no valid checkpoint of this model and optimizer.
std::int64_t load_checkpoint(const LoadedModel& model, const OptimizerState& optimizer,
                             const std::string& path);

}  // namespace axonn
