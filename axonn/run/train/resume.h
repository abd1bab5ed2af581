#pragma once

#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/run/config/config.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/optim/optimizer.h"
#include "axonn/run/optim/optimizer_state.h"

namespace axonn {

/// Throws UsageError if a run with this config cannot continue the checkpoint, since it trains
/// other parameters or keeps another state of them. The message names the keys that differ, and the
/// remedy. Returns a line for each key of [model], [lora] and the section of a registered family
/// that differs although the run can continue. Reads no values.
///
/// config must be resolved, with a vocab. `parameters` are those that are trained, and `kinds` what
/// the run keeps of them (stored_kinds()). Averages of the weights may be missing on either side.
std::vector<std::string> check_continues(const CheckpointReader& reader, const Config& config,
                                         const std::vector<StoredParameter>& parameters,
                                         std::vector<std::string> kinds);
/// check_continues() for the groups of a model and the kinds of an optimizer.
std::vector<std::string> check_continues(const CheckpointReader& reader, const LoadedModel& model,
                                         const OptimizerState& optimizer);

/// Returns a line for each key that differs from the checkpoint's and shapes the curve of the
/// losses from here on, such as "optimizer.lr was 0.001 and is 0.0005", and, if it differs, a line
/// with the learning rate of the next step before and now. `samples` sequences were consumed. Reads
/// no values.
std::vector<std::string> changed_course(const CheckpointReader& reader, const Config& config,
                                        std::int64_t samples);

/// The checkpoint that a run was resumed from.
struct Resumed {
  CheckpointReader reader;
  LoadCost cost;
  std::vector<std::string> warnings;  ///< one line for each newer checkpoint that was skipped
};

/// Loads parameters and optimizer state from the checkpoint at path, a folder DIR/step-N, which
/// must be intact. If path is DIR, loads the newest intact checkpoint in it; if damage shows only
/// while data are read, tries the one before it. Collective over the model's world. Throws
/// UsageError, the same on all ranks, as check_continues() does, which is no damage, and about the
/// checkpoint that was tried first.
/// A checkpoint without averages of the weights is not refused: see OptimizerState.
Resumed resume(const LoadedModel& model, OptimizerState& optimizer, const std::string& path);
/// Loads them from this rank's shard of a local checkpoint (newest_local()), and from no other one.
/// Throws AgreedError if it cannot be read any more, since another start may find what is whole.
Resumed resume(const LoadedModel& model, OptimizerState& optimizer, CheckpointReader local);

}  // namespace axonn
