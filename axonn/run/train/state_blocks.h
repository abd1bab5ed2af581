#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/optim/optimizer_state.h"

namespace axonn {

/// Bytes of a checkpoint of these groups: of all ranks' files, without their headers.
std::int64_t checkpoint_bytes(std::span<ParameterGroup* const> trained, const StateForm& form);
/// Bytes of a rank's buffers of these.
std::int64_t piece_bytes(std::span<ParameterGroup* const> trained, const StateForm& form);

/// This rank's part of the trained parameters and the optimizer's state, as CheckpointSaver takes
/// it.
std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState& optimizer);

}  // namespace axonn
