#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/tensor/arena.h"
#include "axonn/train/config.h"

namespace axonn {

/// The result of `axonn train --dry-run`.
struct DryRun {
  std::int64_t parameters = 0;        ///< of the whole model, unpadded
  std::int64_t trained = 0;           ///< number of trained parameters, including adapters
  std::string place;                  ///< "rank 5 (x 1, y 0, z 1, data 0)"
  ArenaStats memory;                  ///< of that rank: see DryStep
  std::int64_t snapshot_bytes = 0;    ///< extra memory while a checkpoint is written
  std::int64_t share = 0;             ///< parameters that this rank reads from a model's files
  std::int64_t checkpoint_bytes = 0;  ///< size of one checkpoint
  std::int64_t disk_bytes = 0;        ///< most that the run's checkpoints need at once
  std::int64_t disk_free = 0;
  double epochs = 0;          ///< over the whole run
  std::string resumes_from;   ///< path of a checkpoint, or ""
  std::string sample;         ///< which sample is the rank's first, and where it is from
  std::string input, target;  ///< that sample as the loss sees it: text, or token numbers
  std::vector<std::string> warnings;
  std::string fault;  ///< why the run would fail here and now, or ""
};

/// Checks everything that a run needs, for one rank of its grid, without training, without other
/// ranks, and without writing anything (except the cache of tokenised text, if it exists). config
/// must be validated and resolved. Throws UsageError, as the run itself would.
DryRun dry_run(const Config& config, int rank);

/// Returns the result as lines of text.
std::string to_text(const DryRun& run, const Config& config);

}  // namespace axonn
