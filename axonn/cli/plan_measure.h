#pragma once

#include "axonn/plan/report.h"

namespace axonn {

/// Runs a few steps of each of the first `count` plans, one after another, and prints a line with
/// the predicted and the measured values. Ranks are threads, or the launcher's processes.
/// Throws UsageError if the launcher did not start report.options.devices ranks.
void measure_plans(const PlanReport& report, int count);

}  // namespace axonn
