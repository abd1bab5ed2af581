#pragma once

#include <string>

#include "axonn/study/summary.h"

// The parts of html_page, each complete in itself.

namespace axonn {

/// What a part is made of. Refers to both.
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

/// Where a vertical or horizontal axis of percents ends, and how far its marks are apart.
struct PercentAxis {
  double top = 100, step = 20;
};
/// Just wide enough for `most`, from 5 to 100, with two to five steps.
PercentAxis percent_axis(double most);

/// Text of a style sheet.
std::string html_style();

/// SVG: a bar for each group and loss at the longest prompt, with whiskers.
std::string bars_svg(const PageData& data);

/// SVG: a line for each group over the prompt lengths, of one loss.
std::string curves_svg(const PageData& data, std::int64_t variant);

/// Tables of all cells, and of all runs.
std::string cells_table(const PageData& data);
std::string runs_table(const PageData& data);

/// The passages of every group and loss, the most recited first.
std::string passages(const PageData& data);

/// The id of a group's passages.
std::string passages_id(std::int64_t group);

}  // namespace axonn
