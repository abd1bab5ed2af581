#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/simulate.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// The predicted time of a step, and the peak of a rank's arena.
struct Prediction {
  StepTime time = {};
  std::int64_t memory_bytes = 0;
};

/// The name in StepTime::exposed_by of the time by which a step is longer because a node's links
/// send its local checkpoints (checkpoint.local_every) to another node.
inline constexpr const char* kLocalCheckpoints = "local checkpoints";

/// Predicts a step of the run's rank 0 on the machine: the memory to the byte, the time from a
/// simulation of all blocks. Micro-batches between the first and the last are alike, so the time of
/// more than three is extrapolated from two and three. Takes tens of milliseconds.
///
/// For all functions here, the machine must have the rates (check_rates()). Each throws UsageError
/// if the grid cannot cut the model.
/// `steps`, of rank 0, does the dry steps; without it, each function has its own.
Prediction predict(const PreparedRun& run, const Machine& machine, DrySteps& steps);

/// predict() from dry steps of three and four blocks: takes milliseconds at any depth. Blocks
/// are alike, so every figure is assumed to grow linearly from the third block on.
///
/// The time differs from predict()'s if each block hides more of a collective, until all is hidden.
/// The peak is the largest of several sums, and which one is the largest may change with the depth:
/// then memory_bytes is too low, by at most the memory of one block.
Prediction estimate(const PreparedRun& run, const Machine& machine, DrySteps& steps);

/// About the least time of predict() of a run with this time of estimate(): computation is certain
/// within 2 %, and three quarters of the waits for collectives; all together within 5 %.
double certain_seconds(const StepTime& estimated);

/// memory_bytes of estimate().
std::int64_t estimate_memory(const PreparedRun& run, DrySteps& steps);

/// An estimate of about the least that a step can take: a single micro-batch of the run's size is
/// simulated as if it held the whole batch, in the same number of operations. Work on rows takes as
/// many times as long, while latencies and work on parameters count once. memory_bytes is that of
/// one micro-batch.
Prediction optimistic(const PreparedRun& run, const Machine& machine, DrySteps& steps);

/// Whether collectives of the group move rows of the batch, not parameters.
bool is_of_rows(std::string_view group);

/// optimistic() with no collectives but those along x and y: about the least time on any grid that
/// has the run's x and y, and whose ranks compute no less.
double optimistic_seconds_of_xy(const PreparedRun& run, const Machine& machine);

/// optimistic() on each of these grids, which differ from the run's in z and data alone. From a dry
/// step on the run's grid, so that work on parameters is that of its shards, and the memory, too.
std::vector<Prediction> optimistic_on(const std::vector<GridShape>& grids, const PreparedRun& run,
                                      const Machine& machine);

/// A generation of answers of [rl] on a rank, with the longest prompts that training.seq_len has
/// room for: the peak of its arena to the byte, and the simulated time of all answers, each of
/// rl.max_tokens tokens, without rewards.
struct RolloutCost {
  bool holds = false;  ///< rl.hold_weights of the run
  std::int64_t memory_bytes = 0;
  double seconds = 0;
};
RolloutCost rollout_cost(const PreparedRun& run, const Machine& machine);

/// Bytes of parameters, gradients and optimizer state of a rank of the run's grid: a lower bound of
/// its memory. Computed from the sizes of flat buffers, without a dry step.
std::int64_t state_bytes(const PreparedRun& run);

inline Prediction predict(const PreparedRun& run, const Machine& machine) {
  DrySteps steps;
  return predict(run, machine, steps);
}
inline Prediction estimate(const PreparedRun& run, const Machine& machine) {
  DrySteps steps;
  return estimate(run, machine, steps);
}
inline std::int64_t estimate_memory(const PreparedRun& run) {
  DrySteps steps;
  return estimate_memory(run, steps);
}
inline Prediction optimistic(const PreparedRun& run, const Machine& machine) {
  DrySteps steps;
  return optimistic(run, machine, steps);
}

}  // namespace axonn
