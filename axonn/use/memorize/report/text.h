#pragma once

#include <string>

#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// The report for a terminal of 100 columns. Shows a row per variant and group for the longest
/// prompt, the training runs, the exact matches by prompt length if there are several, and for an
/// audit (whose runs name no variant) the best recitations. Plain ASCII but for names and passages,
/// whose control characters are escaped.
std::string to_text(const MemorizationReport& report);

/// One sentence with the main figures: of the groups that are recited most and least.
std::string headline(const MemorizationReport& report, const MemorizationSummary& summary);

/// A document's name, or its number if it has none.
std::string document_text(const MemorizationReport& report, std::int64_t document);

}  // namespace axonn
