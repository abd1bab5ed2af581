#pragma once

#include <string>

#include "axonn/study/recitation.h"

namespace axonn {

/// For a terminal: at most 100 columns, rules and marks in ASCII (names and passages are as they
/// are, control characters escaped). A row for each loss and group at the longest prompt; the exact
/// matches by prompt length, where there are several; what the trainings came to; and of an audit
/// (its runs name no loss) the most recited documents.
std::string to_text(const MemorizationReport& report);

/// Everything, and the figures of summary.h under "summary". Texts that are not UTF-8 have U+FFFD
/// for what is not; numbers that are not finite are null.
std::string to_json(const MemorizationReport& report);
std::string to_json(const RecitationRun& run);

/// What to_json wrote; the summary is not read. Errors: UsageError that begins with `where` (the
/// file) and names the value, where the text is damaged.
MemorizationReport parse_report(const std::string& text, const std::string& where);
/// The same of one run; groups and documents are not held against a report.
RecitationRun parse_run(const std::string& text, const std::string& where);

/// One self-contained page: it fetches nothing and runs nothing, is light or dark as the reader
/// has it, and prints. Bars of exact matches, curves over prompt lengths where there are several,
/// tables of all figures, and recited passages with what both texts have marked.
std::string html_page(const MemorizationReport& report);

}  // namespace axonn
