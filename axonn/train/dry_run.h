#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/tensor/arena.h"
#include "axonn/train/config.h"

namespace axonn {

/// What `axonn train --dry-run` finds out.
struct DryRun {
  std::int64_t parameters = 0;        ///< of the whole model, unpadded
  std::int64_t trained = 0;           ///< those of them, or of adapters, that are trained
  std::string place;                  ///< "rank 5 (x 1, y 0, z 1, data 0)"
  ArenaStats memory;                  ///< of that rank: see DryStep
  std::int64_t snapshot_bytes = 0;    ///< beside it while it writes a checkpoint
  std::int64_t share = 0;             ///< parameters that this rank would read of a model's files
  std::int64_t checkpoint_bytes = 0;  ///< of one
  std::int64_t disk_bytes = 0;        ///< that this run may need at once for all that it keeps
  std::int64_t disk_free = 0;
  double epochs = 0;          ///< over the whole run
  std::string resumes_from;   ///< a checkpoint, or ""
  std::string sample;         ///< where the first sample of the rank lies
  std::string input, target;  ///< of that sample, as the loss sees them: text, or token numbers
  std::vector<std::string> warnings;
  std::string fault;  ///< why it would fail here and now, or ""
};

/// Checks all that a run needs, for one rank of its grid, without training, without the other ranks
/// and without writing (but for the cache of tokenised text, where there is one already). config is
/// validated and resolved.
/// Errors: UsageError, as the run itself would throw them.
DryRun dry_run(const Config& config, int rank);

/// It as lines.
std::string to_text(const DryRun& run, const Config& config);

}  // namespace axonn
