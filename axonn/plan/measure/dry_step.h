#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/recording.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

struct DryStepOptions {
  bool recording = false;  ///< record the operations of the step
  /// A step with more micro-batches runs only this many: the first, one or more between, and the
  /// last. All between are alike.
  int most_micro_batches = 3;
};

/// Memory and recording of one rank's step.
struct DryStep {
  /// The peak of a step that follows another one. It equals the peak of the rank's arena in a run
  /// to the byte, since the same code asks for memory in the same order.
  ArenaStats memory;
  std::int64_t kept_bytes = 0;  ///< that are allocated between the last forward and its backward
  /// Recording of a step that follows another one: the order of blocks is known, and work is left
  /// over from the step before. If a step has more than three micro-batches, the recording has only
  /// three; the second stands for all between.
  Recording recording;
};

/// Takes the events of a step, at whose beginning `before` collectives had started, out of the
/// recording. All steps end with the same work in flight, so a wait for work of the step before
/// becomes a wait for the same work at the end of this one.
Recording taken_events(Recording& recording, std::size_t before);

/// The run without what needs a GPU or dry steps itself. Throws Error if its grid is automatic.
PreparedRun for_dry_steps(const PreparedRun& run);

/// Runs the trainer's own step of one rank of the run's grid with its model, layers and
/// optimizer, but on a device without memory, with operations without arithmetic, and without the
/// other ranks. So memory and recording are counted, not modelled a second time. Takes
/// milliseconds, whatever the sizes.
///
/// Throws UsageError if the grid cannot cut the model, with the sizes that it can, and Error if the
/// grid is automatic.
DryStep dry_step(const PreparedRun& run, int rank, const DryStepOptions& options = {});

/// Dry steps of one rank of runs that differ only in model.layers, training.micro_batch and
/// [activation_checkpoint]. Keeps a model for each number of layers, which does each step after
/// those before, and the memory of each step: takes half the time of dry_step() or less, with the
/// same results.
class DrySteps {
 public:
  explicit DrySteps(int rank = 0);
  DrySteps(const DrySteps&) = delete;
  DrySteps& operator=(const DrySteps&) = delete;
  ~DrySteps();

  /// As dry_step(run, rank, options).
  DryStep step(const PreparedRun& run, const DryStepOptions& options = {});

 private:
  struct Model;
  /// Layers, micro-batch, number of micro-batches, and the three parts of RecomputedBlocks.
  using Key = std::array<std::int64_t, 6>;

  const int rank_;
  std::map<std::int64_t, std::unique_ptr<Model>> models_;  // by layers
  std::map<Key, DryStep> known_;                           // without recordings
};

}  // namespace axonn
