#pragma once

#include <string>
#include <vector>

#include "axonn/study/summary.h"

// How a report says things, on a terminal and on a page alike.

namespace axonn {

/// 47.0; "-" of a cell that nobody recited.
std::string percent_text(const RecitationCell& cell);

/// Of several trials the range over them ("42.0 to 51.5"), of one the 95 % interval.
std::string range_text(const RecitationCell& cell);
Interval range_of(const RecitationCell& cell);

/// What range_text is: "range over trials", "95 % interval", or of some cells this and of others
/// that, "range or interval".
std::string range_title(const MemorizationSummary& summary);

/// A row of figures: exact match, its range, longest run, token accuracy in percent, edit distance
/// and loss.
std::vector<std::string> figures_of(const RecitationCell& cell);

/// "2.875", and where trials differ "2.875 (2.750 to 3.000)".
std::string spread_text(const Spread& spread, int digits);

/// "64", or "whole" for kWholePrompt.
std::string prompt_text(std::int64_t length);

/// "standard loss"; "" for a run that names none.
std::string loss_text(const std::string& variant);

/// Whether no run names a loss, so that nothing is to be said of losses.
bool is_audit(const MemorizationReport& report);

/// The name of a document, or its number if it has none.
std::string document_text(const MemorizationReport& report, std::int64_t document);

struct Quotes {
  std::string open = "\"", close = "\"";
};

/// The main figures in one sentence: of the group that is recited most, and of the one least.
std::string headline(const MemorizationReport& report, const MemorizationSummary& summary,
                     const Quotes& quotes);

}  // namespace axonn
