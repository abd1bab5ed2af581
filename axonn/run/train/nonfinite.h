#pragma once

#include <string>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

namespace axonn {

struct MicroBatch;

/// Repeats the forward and backward of a step whose loss or gradient norm was NaN or infinite, and
/// checks the result of every operation. Returns where it arose first on any rank:
///
///   "in layer h.1.mlp.c_fc.weight, operation matmul (forward), on rank 1 (x 1, y 0, z 0, data 0),
///   micro-batch 1 of 3, samples 12 to 15"
///
/// or "" if everything is finite this time. `batch` holds this rank's micro-batches. Collective;
/// the same on all ranks. Slow: waits for the device after every operation.
std::string find_nonfinite(Training& training, StepInput input,
                           const std::vector<MicroBatch>& batch);

/// Saves a step that was not finite as FOLDER/step-N, N being the steps done before it: a
/// checkpoint of the parameters without the optimizer's state, the texts of the run, and the batch:
/// samples, their origin, and tokens. Collective. Throws as CheckpointSaver does.
void save_step(Training& training, const StepInput& input, const std::string& folder,
               StateTexts texts);

/// The end of a run whose step `input` gave this result: finds the origin, saves the step in
/// DIR/nonfinite-step-N (N counted from 1), and throws the same Error on all ranks, which names
/// both. texts are those of the run's checkpoints. Collective.
[[noreturn]] void stop_for_nonfinite(Training& training, const StepInput& input,
                                     const StepResult& result, const std::string& dir,
                                     StateTexts texts);

/// The config of a step that save_step() saved: its grid and type may be changed. Call it once per
/// process, before its ranks start. Throws UsageError if FOLDER holds no such step.
Config config_of_step(const std::string& folder);

struct Replay {
  std::int64_t step = 0;  ///< counted from 1
  StepResult result = {};
  std::string origin = {};  ///< find_nonfinite()
  /// Products that were computed in the way that the run's tuning had chosen.
  std::int64_t tuned_products = 0;
};
/// Repeats the step that save_step() saved in FOLDER, with the run's tuned products; the run is
/// that of config_of_step(). Nothing is updated or written. Collective. Throws UsageError if the
/// step is damaged.
Replay replay(const PreparedRun& run, const std::string& folder, Communicator& world,
              const ProgressTarget& progress = {});

}  // namespace axonn
