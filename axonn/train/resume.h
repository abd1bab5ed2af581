#pragma once

#include <string>
#include <vector>

#include "axonn/model/load.h"
#include "axonn/storage/checkpoint/checkpoint_reader.h"
#include "axonn/storage/checkpoint/checkpoint_saver.h"
#include "axonn/train/config.h"
#include "axonn/train/optimizer.h"

namespace axonn {

class Session;

/// The path that a run resumes from: checkpoint.resume, or for "auto" the folder of output.dir if
/// it holds checkpoints; "" for a fresh start. Call it on rank 0.
std::string resume_path(const Config& config);

/// What a checkpoint holds of the trained parameters on this rank: master copies and the
/// optimizer's buffers. `device` holds them.
std::vector<StateBlock> state_of(const OptimizerState& optimizer, Device& device);

/// Sets the state from a checkpoint. Collective. Throws as load() does.
LoadCost load_state(const Context& ctx, const OptimizerState& optimizer,
                    const CheckpointReader& reader);

/// The checkpoint that a run was resumed from.
struct Resumed {
  CheckpointReader reader;
  LoadCost cost;
  std::vector<std::string> warnings;  ///< one line for each newer checkpoint that was skipped
};

/// Loads everything from the checkpoint at path, a folder DIR/step-N, which must be valid. If path
/// is DIR, loads the newest valid checkpoint in it; if damage shows only while data are read, tries
/// the one before it. Collective over the session's world. Throws UsageError, the same on all
/// ranks, about the checkpoint that was tried first.
Resumed resume(Session& session, const std::string& path);

}  // namespace axonn
