#pragma once

#include <string>

#include "axonn/study/report.h"

namespace axonn {

/// The report as one self-contained HTML page without external files, with a light, a dark and a
/// print style: page.html, with the JSON that its script (page.js) draws. Shows bars of exact
/// matches, curves over prompt lengths if there are several, tables of all figures, and recited
/// passages with the common text marked.
std::string html_page(const MemorizationReport& report);

}  // namespace axonn
