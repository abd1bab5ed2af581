#pragma once

#include <string>

#include "axonn/study/recitation.h"

namespace axonn {

/// The report for a terminal of 100 columns. Shows a row per loss and group for the longest prompt,
/// the training runs, the exact matches by prompt length if there are several, and for an audit
/// (whose runs name no loss) the best recitations. Plain ASCII but for names and passages, whose
/// control characters are escaped.
std::string to_text(const MemorizationReport& report);

/// The whole report as JSON, with the figures of summary.h under "summary". Invalid UTF-8 becomes
/// U+FFFD, and a number that is not finite becomes null.
std::string to_json(const MemorizationReport& report);
std::string to_json(const RecitationRun& run);

/// Reads a report that to_json() wrote, without its summary. Throws UsageError if the text is
/// damaged; the message begins with `where` (the file) and names the value.
MemorizationReport parse_report(const std::string& text, const std::string& where);
/// Reads one run; does not check its groups and documents against a report.
RecitationRun parse_run(const std::string& text, const std::string& where);

/// The report as one self-contained HTML page, without scripts or external files, with a light, a
/// dark and a print style. Shows bars of exact matches, curves over prompt lengths if there are
/// several, tables of all figures, and recited passages with the common text marked.
std::string html_page(const MemorizationReport& report);

}  // namespace axonn
