#pragma once

#include <string>

#include "axonn/study/summary.h"

// The parts of html_page().

namespace axonn {

/// The input of every part. Holds references only.
struct PageData {
  const MemorizationReport& report;
  const MemorizationSummary& summary;

  const RecitationCell& longest(std::int64_t variant, std::int64_t group) const {
    return summary.at(variant, group, summary.longest_prompt());
  }
  const std::string& loss(std::int64_t variant) const { return summary.variants[variant].name; }
  std::int64_t losses() const { return std::ssize(summary.variants); }
  std::int64_t groups() const { return std::ssize(report.groups); }
};

/// The end of an axis of percentages and the distance between its ticks.
struct PercentAxis {
  double top = 100, step = 20;
};
/// The shortest axis that covers `most`, with two to five steps; it ends between 5 and 100.
PercentAxis percent_axis(double most);

/// The CSS of the page.
std::string html_style();

/// SVG bar chart: one bar with whiskers per group and loss, for the longest prompt.
std::string bars_svg(const PageData& data);

/// SVG line chart for one loss: one line per group over the prompt lengths.
std::string curves_svg(const PageData& data, std::int64_t variant);

/// HTML tables of all cells and of all runs.
std::string cells_table(const PageData& data);
std::string runs_table(const PageData& data);

/// HTML of the recited passages by group and loss, best recitation first.
std::string passages(const PageData& data);

/// The HTML id of a group's passages.
std::string passages_id(std::int64_t group);

}  // namespace axonn
