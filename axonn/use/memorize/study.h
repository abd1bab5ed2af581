#pragma once

#include <optional>
#include <string>

#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/trainer.h"
#include "axonn/use/memorize/config.h"
#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// Runs the study that `memorize` describes. Each trial (seeds training.seed, training.seed + 1,
/// ...) draws documents into buckets and trains one model per loss on the text of [data]. After
/// lr_scheduler.warmup_steps the documents are injected into the training sequences. Then the model
/// is tested on all documents. The warm-up is a run of its own with the standard loss; the runs of
/// all losses start from its checkpoint. Writes output.dir/trial-N-warmup/ and trial-N-LOSS/ (the
/// files of train(), and recitations.json after the test), report.json and report.html.
///
/// Keeps the runs that an earlier call finished in output.dir, and resumes the one that it began.
/// Collective over world. options: of every training; the study
/// sets make_sequences, describe and finished itself. origin: program, command and config; the
/// study sets the rest. Returns the report on rank 0, an incomplete one on others, and nothing if
/// it was asked to stop. Throws as train() and validate_study(), and UsageError if output.dir holds
/// another study, or there are too few documents or steps.
std::optional<MemorizationReport> run_study(const PreparedRun& run, const MemorizeConfig& memorize,
                                            Communicator& world, const TrainOptions& options,
                                            const ReportOrigin& origin = {});

}  // namespace axonn
