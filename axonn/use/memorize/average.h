#pragma once

#include <span>
#include <string>

#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// Sets the trained parameters of a model to the mean of those of several checkpoints of it,
/// folders DIR/step-N, written on any grid. Sums are in f64, in the order of the checkpoints.
/// Memory: 8 bytes for each parameter of this rank. Collective over the model's grid. Throws
/// UsageError, the same on all ranks, if a checkpoint is missing, damaged, or of another model.
void load_average(LoadedModel& model, std::span<const std::string> checkpoints);

}  // namespace axonn
