#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/corpus/blanks.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// What it takes to make a run forget documents: to repeat it from before their first use.
struct ForgetPlan {
  /// In the order of data.forget, with their occurrences in the data of the first stage, then the
  /// next.
  std::vector<ForgottenDocument> documents;
  /// The first step, counted from 1, that reads a document that the run has not left out; none.
  std::optional<std::int64_t> first;
  std::int64_t steps = 0;   ///< of the run
  std::string checkpoint;   ///< the newest intact one before that step; "": the run starts anew
  std::int64_t from = 0;    ///< steps that this checkpoint has done
  double step_seconds = 0;  ///< median of the run's steps; 0: not known
  std::vector<std::string> warnings;

  std::int64_t repeated() const { return steps - from; }
  double seconds() const { return static_cast<double>(repeated()) * step_seconds; }
};

/// Plans to repeat the run in a folder, output.dir of an earlier run, with this config, whose
/// data.forget names further documents. config must be prepared. Reads the data once, and writes
/// nothing. Throws UsageError as open_stages(), and for a config whose runs are not repeatable.
ForgetPlan plan_forgetting(Config config, const std::string& run);

}  // namespace axonn
