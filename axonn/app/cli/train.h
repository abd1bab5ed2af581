#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/app/cli/config_flags.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// Where a run writes to, and what it resumes: values of output.dir and checkpoint.resume.
struct RunOutput {
  std::string folder, resume;
};

/// Flags of the commands that train: what to do instead.
struct TrainFlags {
  bool print = false, dry = false;
  int rank = 0;           ///< whose memory a dry run reports
  std::int64_t fit = 0;   ///< bytes of a device within which open settings are chosen; 0: no limit
  std::string note = {};  ///< printed once the config has turned out to be one that can be trained
  /// The same run again, with other outputs, one after the other by the same ranks.
  std::vector<RunOutput> again = {};
};
void add_train_flags(CLI::App& app, TrainFlags& flags);

/// A dry run of the training, as rank `rank` of its grid does it: prints what it found. Returns the
/// exit code. Throws Error if something is wrong. fit: as TrainFlags::fit.
int train_dry(const PreparedRun& run, int rank, std::int64_t fit = 0);

/// Trains as the config says, or prints or checks it as the flags say. Returns the exit code of
/// `axonn train`. Throws as train() does, and UsageError for a config that cannot be trained.
int run_training(const LoadedConfig& loaded, const TrainFlags& flags);

}  // namespace axonn
