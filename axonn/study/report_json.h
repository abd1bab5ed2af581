#pragma once

#include <string>

#include "axonn/study/report.h"

namespace axonn {

/// The whole report as JSON, with its headline() and the figures of summary.h ("variants", and
/// "summary": the cells that have recitations). Invalid UTF-8 becomes U+FFFD, and a number that is
/// not finite becomes null.
std::string to_json(const MemorizationReport& report);
std::string to_json(const RecitationRun& run);

/// The JSON that the HTML page reads, on one line: as to_json(), but "summary" has all cells, by
/// variant, group and prompt; seeds are texts, since JavaScript would round them; and instead of
/// all recitations and names there are "passages": by variant and group, the number of tested
/// documents and the best recitations of the 50 most recited ones.
std::string page_json(const MemorizationReport& report);

/// Reads a run that to_json() wrote; does not check its groups and documents against a report.
/// Throws UsageError if the text is damaged; the message begins with `where` (the file) and names
/// the value.
RecitationRun parse_run(const std::string& text, const std::string& where);

}  // namespace axonn
