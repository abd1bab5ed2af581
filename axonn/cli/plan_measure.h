#pragma once

#include "axonn/plan/report.h"

namespace axonn {

/// Runs a few steps of each of the first `count` plans here, one after another, and prints a line
/// for each: what was planned, and what was measured. Ranks are threads, or the launcher's.
/// Errors: UsageError where the launcher started other than report.options.devices ranks.
void measure_plans(const PlanReport& report, int count);

}  // namespace axonn
