#pragma once

#include <string>

#include "axonn/study/report.h"

namespace axonn {

/// The whole report as JSON, with its headline() and the figures of its summary ("variants", and
/// "summary": the cells that have recitations). Invalid UTF-8 becomes U+FFFD, and a number that is
/// not finite becomes null.
std::string to_json(const MemorizationReport& report);
std::string to_json(const RecitationRun& run);

/// Reads a run that to_json() wrote; does not check its groups and documents against a report.
/// Throws UsageError if the text is damaged; the message begins with `where` (the file) and names
/// the value.
RecitationRun parse_run(const std::string& text, const std::string& where);

/// The report as one self-contained HTML page without external files, with a light, a dark and a
/// print style: page.html, with JSON that its script (page.js) draws. Shows bars of exact matches,
/// curves over prompt lengths if there are several, tables of all figures, and recited passages
/// with the common text marked.
///
/// The JSON is that of to_json(), but "summary" has all cells, by variant, group and prompt; seeds
/// are texts, since JavaScript would round them; and instead of all recitations and names there are
/// "passages": by variant and group, the number of tested documents and the best recitations of the
/// 50 most recited ones.
std::string html_page(const MemorizationReport& report);

}  // namespace axonn
