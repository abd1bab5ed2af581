#pragma once

#include <string>
#include <vector>

#include "axonn/foundation/base/log.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/use/memorize/config.h"

namespace axonn {

/// What run_study() would do, in lines: trainings and their steps, the buckets and their sequences,
/// processor time, and the claims that their sizes can support. Makes the checks that it makes of
/// documents and steps, for every trial; trains nothing, writes nothing. Throws UsageError as it
/// does.
std::string describe_study(const PreparedRun& run, const MemorizeConfig& memorize,
                           const ProgressTarget& progress = {});

/// What was done, a sentence each, for the report.
std::vector<std::string> study_notes(const Config& config, const MemorizeConfig& memorize);

/// The schedule of this name, as in lr_scheduler.kind. Throws UsageError if there is none.
ScheduleKind schedule_of(const std::string& name);

}  // namespace axonn
