#pragma once

#include <atomic>
#include <iosfwd>
#include <optional>

#include "axonn/comm/communicator.h"
#include "axonn/study/recitation.h"
#include "axonn/train/config.h"

namespace axonn {

struct StudyOptions {
  std::ostream* terminal = nullptr;  ///< where rank 0 shows progress; null: nowhere
  bool interactive = false;          ///< the step line may be redrawn in place
  int columns = 100;
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal: save and end after this step
};

/// The study of [memorize]: for each trial (seeds training.seed, training.seed + 1, ...) documents
/// are drawn into buckets, and with each loss a model is trained on what [data] names, into which
/// the buckets' documents come while the rate falls, after lr_scheduler.warmup_steps; then it is
/// asked to recite them all. The warm-up is one run with the standard loss, from which every loss
/// goes on. Writes output.dir/trial-N-warmup/ and trial-N-LOSS/ (a run each, as train() does, and
/// recitations.json when it has been asked), report.json and report.html.
///
/// What an earlier call finished in output.dir is not done again, and what it began goes on.
/// Collective over world; config is validated and resolved. Returns the report on rank 0, a stub
/// of it on others; nothing if it was asked to stop.
/// Errors: as train(), and UsageError if output.dir holds another study, or there are too few
/// documents or steps.
std::optional<MemorizationReport> run_study(const Config& config, Communicator& world,
                                            const StudyOptions& options);

/// Errors: UsageError that names the keys, where [memorize] contradicts itself or the rest.
void validate_study(const Config& config);

}  // namespace axonn
