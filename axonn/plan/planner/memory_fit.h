#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// The settings that fit_memory() may choose: those that a user has left open.
struct OpenSettings {
  bool micro_batch = true, recomputation = true;
  bool moments = true;   ///< optimizer.moments, of runs without adapters
  bool quantize = true;  ///< model.quantize, of runs with adapters
  bool offload = false;  ///< parameters, gradients and optimizer of [offload], of runs with its dir
};

/// Settings of a run, and what they give.
struct FittedSettings {
  std::int64_t micro_batch = 1;
  MomentType moments = MomentType::f32;
  Quantization quantize = Quantization::none;
  OffloadConfig offload = {};
  std::int64_t budget = 0;      ///< activation_checkpoint.budget, bytes; 0: recomputation stays
  std::int64_t peak_bytes = 0;  ///< of the arena of any rank, to the byte
  double seconds = 0;           ///< of a step, simulated on machine_of()
};

/// The bytes that the arena of each rank of a run may take.
using ArenaBudget = std::function<std::int64_t(const PreparedRun&)>;

/// The settings with which no rank's peak is above the budget. First are those that change no more
/// than the order of sums: micro-batches, halved down to one sequence, and recomputation; of these
/// the ones with the shortest simulated step. If none fits, values go to the file of [offload]:
/// those with which the step is shortest. Only if that does not suffice or is not open do moments
/// take fewer bytes (bf16, then 8 bits), or frozen weights (q8_0, then nf4). Nothing if no settings
/// fit. The grid must not be automatic. Throws UsageError if a disk's time is not known.
std::optional<FittedSettings> fit_memory(const PreparedRun& run, const ArenaBudget& budget,
                                         const OpenSettings& open);

/// The largest peak of any rank's arena while the run trains and writes answers of [rl], in bytes.
std::int64_t peak_of_run(const PreparedRun& run);

}  // namespace axonn
