#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/base/log.h"
#include "axonn/tensor/arena.h"
#include "axonn/tensor/schedule.h"
#include "axonn/train/config.h"
#include "axonn/train/samples.h"
#include "axonn/train/training.h"

namespace axonn {

struct DryStepOptions {
  bool schedule = false;  ///< record the schedule of the step
  /// A step with more micro-batches runs only this many: the first, one or more between, and the
  /// last. All between are alike.
  int most_micro_batches = 3;
};

/// Memory and schedule of one rank's step.
struct DryStep {
  /// The peak over two steps. It equals the peak of the rank's arena in a run to the byte, since
  /// the same code asks for memory in the same order.
  ArenaStats memory;
  std::int64_t kept_bytes = 0;  ///< that are allocated between the last forward and its backward
  /// Schedule of the second step: the first in which the order of blocks is known and work is left
  /// over from the step before. If a step has more than three micro-batches, the schedule has only
  /// three; the second stands for all between.
  Schedule schedule;
};

/// Runs the trainer's own step of one rank of config's grid with the run's model, layers and
/// optimizer, but on a device without memory, with operations without arithmetic, and without the
/// other ranks. So memory and schedule are counted, not modelled a second time. Takes milliseconds,
/// whatever the sizes.
///
/// config must be validated and resolved, and have a vocab. Throws UsageError if the grid cannot
/// cut the model, and names the sizes that it can.
DryStep dry_step(const Config& config, int rank, const DryStepOptions& options = {});

/// The result of `axonn train --dry-run`.
struct DryRun {
  std::int64_t parameters = 0;        ///< of the whole model, unpadded
  std::int64_t trained = 0;           ///< number of trained parameters, including adapters
  std::string place;                  ///< "rank 5 (x 1, y 0, z 1, data 0)"
  ArenaStats memory;                  ///< of that rank: see DryStep
  std::int64_t sample_bytes = 0;      ///< of that rank while samples are written; 0: there are none
  std::int64_t snapshot_bytes = 0;    ///< extra memory while a checkpoint is written
  std::int64_t share = 0;             ///< parameters that this rank reads from a model's files
  std::int64_t checkpoint_bytes = 0;  ///< size of one checkpoint
  std::int64_t disk_bytes = 0;        ///< most that the run's checkpoints need at once
  std::int64_t disk_free = 0;
  double epochs = 0;                     ///< over the whole run, if it has no stages
  std::vector<std::string> stages = {};  ///< a line for each
  std::string resumes_from;              ///< path of a checkpoint, or ""
  std::string sample;                    ///< which sample is the rank's first, and where it is from
  std::string input, target;  ///< that sample as the loss sees it: text, or token numbers
  std::vector<std::string> warnings;
  std::string fault;  ///< why the run would fail here and now, or ""
};

/// Checks everything that a run needs, for one rank of its grid, without training, without other
/// ranks, and without writing anything (except the cache of tokenised text, if it exists). config
/// must be validated and resolved. Throws UsageError, as the run itself would.
DryRun dry_run(const Config& config, int rank, const TextSamplerMaker& make_text_sampler = {},
               const ProgressTarget& progress = {});

/// Returns the result as lines of text.
std::string to_text(const DryRun& run, const Config& config);

}  // namespace axonn
