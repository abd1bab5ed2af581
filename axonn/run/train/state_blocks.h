#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/optim/optimizer_state.h"

namespace axonn {

/// What a checkpoint holds of each group that is trained.
struct StoredState {
  std::int64_t kinds = 1;  ///< values of each element: weights, optimizer's state, averages
  bool factors = false;    ///< and those of FactorLayout
};
/// Bytes of a checkpoint of these groups: of all ranks' files, without their headers.
std::int64_t checkpoint_bytes(std::span<ParameterGroup* const> trained, const StoredState& state);
/// Bytes of a rank's buffers of these.
std::int64_t piece_bytes(std::span<ParameterGroup* const> trained, const StoredState& state);

/// This rank's part of the trained parameters and the optimizer's state, as CheckpointSaver takes
/// it.
std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState& optimizer);

}  // namespace axonn
