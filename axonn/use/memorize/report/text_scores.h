#pragma once

#include <string>

#include "axonn/use/memorize/report/report.h"

namespace axonn {

// Tables of the report for a terminal, each with its title. Empty without what they show.

/// How well scores separate each group from the control, in the first trial.
std::string membership_table(const MemorizationReport& report);
/// Whether some scores know references.
bool has_references(const MemorizationReport& report);
/// How far an audit's model is from its reference.
std::string distance_table(const MemorizationReport& report);
/// What the references of each trial say.
std::string references_table(const MemorizationReport& report);
/// How far canaries are from the middle of their candidates.
std::string exposure_table(const MemorizationReport& report, const MemorizationSummary& summary);
/// Random bits that the runs of the first trial hold.
std::string capacity_table(const MemorizationReport& report);

}  // namespace axonn
