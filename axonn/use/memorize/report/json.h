#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// The whole report as JSON, with its headline() and the figures of its summary ("variants", and
/// "summary": the cells that have recitations). Invalid UTF-8 becomes U+FFFD, and a number that is
/// not finite becomes null.
std::string to_json(const MemorizationReport& report);
std::string to_json(const RecitationRun& run);

/// The same of a report, piece by piece, so that memory does not grow with its recitations.
using TextSink = std::function<void(std::string_view)>;
void write_json(const MemorizationReport& report, const TextSink& to);

/// On one line.
std::string to_json(const CurvePoint& point);
std::string to_json(const Recitation& recitation);
/// A list of numbers, of which minus infinity is null.
std::string to_json(const std::vector<double>& values);

/// Reads a point that to_json() wrote. Throws as parse_run().
CurvePoint parse_point(const std::string& text, const std::string& where);

/// Reads a recitation likewise.
Recitation parse_recitation(const std::string& text, const std::string& where);
std::vector<double> parse_values(const std::string& text, const std::string& where);

/// Reads a run that to_json() wrote; does not check its groups and documents against a report.
/// Throws UsageError if the text is damaged; the message begins with `where` (the file) and names
/// the value.
RecitationRun parse_run(const std::string& text, const std::string& where);

/// Passages of a variant and group on the page, so that a large report opens at once.
inline constexpr std::int64_t kMostPassages = 500;

/// The report as one self-contained HTML page without external files, with a light, a dark and a
/// print style: page.html, with JSON that its script (page.js) draws. Shows bars of exact matches,
/// curves of several figures over the epochs, and over prompt lengths if there are several, each of
/// which can be saved as SVG; tables of all figures; recited passages with the common text marked,
/// those of the most recited group first and of the control last; and the report's origin.
///
/// The JSON is that of to_json(), but "summary" has all cells, by variant, group and prompt; seeds
/// are texts, since JavaScript would round them; and instead of all recitations and names there are
/// "passages": by variant and group, the best recitation of each document, of at most
/// kMostPassages; and "suffixes": with the longest prompt, by the indices of variant and group and
/// by policy, log10 of the probability of each suffix, the largest first.
std::string html_page(const MemorizationReport& report);

}  // namespace axonn
