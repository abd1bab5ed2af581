#pragma once

// The first columns of a report's tables.

#include <algorithm>
#include <string>

#include "axonn/foundation/base/utf8.h"
#include "axonn/use/memorize/report/report.h"
#include "axonn/use/memorize/report/text_table.h"

namespace axonn {

inline constexpr int kMostVariant = 10, kMostGroup = 18;  ///< most columns of a name
inline constexpr int kMostTraining = 18;                  ///< likewise, in tables without groups

/// Whether no run names a variant; the report then does not mention variants.
inline bool is_audit(const MemorizationReport& report) {
  return std::ranges::all_of(report.runs,
                             [](const RecitationRun& run) { return run.variant.empty(); });
}

inline std::string variant_name(const std::string& name, int most = kMostVariant) {
  return shortened(printable(name), most);
}
inline std::string group_name(const std::string& name) {
  return shortened(printable(name), kMostGroup);
}

/// The first columns of a row: the variant (not in an audit) and the group.
inline TextRow names_of(const MemorizationReport& report, const std::string& variant,
                        const std::string& group) {
  return is_audit(report) ? TextRow{group_name(group)}
                          : TextRow{variant_name(variant), group_name(group)};
}

}  // namespace axonn
