#pragma once

#include <string>
#include <vector>

#include "axonn/study/summary.h"

// Wording that the terminal report and the HTML page share.

namespace axonn {

/// "47.0", or "-" for a cell without recitations.
std::string percent_text(const RecitationCell& cell);

/// The range over several trials ("42.0 to 51.5"), or the 95 % interval of one trial.
std::string range_text(const RecitationCell& cell);
Interval range_of(const RecitationCell& cell);

/// The title of a column of range_text(): "range over trials", "95 % interval", or "range or
/// interval" if the cells differ.
std::string range_title(const MemorizationSummary& summary);

/// A row of figures: exact match, its range, longest run, token accuracy in percent, edit distance
/// and loss.
std::vector<std::string> figures_of(const RecitationCell& cell);

/// "2.875", or "2.875 (2.750 to 3.000)" if trials differ.
std::string spread_text(const TrialSpread& spread, int digits);

/// "64", or "whole" for kWholePrompt.
std::string prompt_text(std::int64_t length);

/// "standard loss", or "" if the variant is "".
std::string loss_text(const std::string& variant);

/// Whether no run names a loss; the report then does not mention losses.
bool is_audit(const MemorizationReport& report);

/// A document's name, or its number if it has none.
std::string document_text(const MemorizationReport& report, std::int64_t document);

struct Quotes {
  std::string open = "\"", close = "\"";
};

/// One sentence with the main figures: of the groups that are recited most and least.
std::string headline(const MemorizationReport& report, const MemorizationSummary& summary,
                     const Quotes& quotes);

}  // namespace axonn
