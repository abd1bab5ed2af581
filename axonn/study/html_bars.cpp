#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "axonn/study/code_points.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

constexpr double kWidth = 1000, kBar = 21, kBetweenBars = 5, kBetweenGroups = 24;
constexpr double kValue = 52;      // space for a value to the right of the axis
constexpr double kBarLetter = 8;   // approximate pixels per column of text
constexpr int kMostBarLabel = 30;  // most columns of a group's name
constexpr int kPatterns = 4;       // fill patterns that tell losses apart without color

/// The layout of the chart, from top to bottom: legend, bars, axis.
struct BarFrame {
  double left, right, top, bottom;
  PercentAxis axis;

  explicit BarFrame(const PageData& data) {
    int columns = 0;
    double most = 0;
    for (const std::string& group : data.report.groups)
      columns = std::max(columns, columns_of(code_points(shortened(group, kMostBarLabel))));
    for (const RecitationCell& cell : data.summary.cells)
      if (cell.prompt == data.summary.longest_prompt()) most = std::max(most, range_of(cell).high);
    left = kBarLetter * columns + 20;
    right = kWidth - kValue;
    top = is_audit(data.report) ? 6 : 40;
    bottom = top + static_cast<double>(data.groups()) * group_height(data);
    axis = percent_axis(most);
  }
  static double group_height(const PageData& data) {
    return static_cast<double>(data.losses()) * (kBar + kBetweenBars) - kBetweenBars +
           kBetweenGroups;
  }
  double across(double percent) const { return left + (right - left) * percent / axis.top; }
};

/// SVG definitions of the fill patterns. Pattern 0 is solid and needs none.
std::string patterns(const PageData& data) {
  constexpr std::array<const char*, kPatterns> kLines = {
      "", R"(<path d="M-2 2 2-2M0 8 8 0M6 10 10 6"/>)", R"(<circle cx="4" cy="4" r="1.2"/>)",
      R"(<path d="M0 4H8"/>)"};
  std::string defs = "<defs>";
  for (std::int64_t v = 0; v < data.losses(); ++v)
    if (v % kPatterns > 0)
      defs += fmt::format(
          R"(<pattern id="fill{}" class="c{}" width="8" height="8" patternUnits="userSpaceOnUse">)"
          R"(<rect class="tint" width="8" height="8"/><g class="hatch">{}</g></pattern>)",
          v, v % 8, kLines[v % kPatterns]);
  return defs + "</defs>\n";
}

std::string bar(std::int64_t variant, double x, double y, double width, double height) {
  const std::string fill =
      variant % kPatterns == 0 ? "" : fmt::format(" style=\"fill:url(#fill{})\"", variant);
  return fmt::format(
      R"(<rect class="bar c{}"{} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
      variant % 8, fill, x, y, width, height);
}

std::string legend(const PageData& data, const BarFrame& frame) {
  std::string svg;
  double x = frame.left;
  for (std::int64_t v = 0; v < data.losses(); ++v) {
    const std::string name = shortened(loss_text(data.loss(v)), kMostBarLabel);
    if (name.empty()) continue;
    svg += bar(v, x, 6, 22, 13) +
           fmt::format("<text x=\"{:.1f}\" y=\"17\">{}</text>\n", x + 29, escaped(name));
    x += 56 + kBarLetter * columns_of(code_points(name));
  }
  return svg;
}

std::string grid(const BarFrame& frame) {
  std::string svg;
  for (int i = 0; i * frame.axis.step <= frame.axis.top + 1e-9; ++i) {
    const double x = frame.across(i * frame.axis.step);
    svg += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n",
        i == 0 ? "axis" : "grid", x, x, frame.top, frame.bottom, x, frame.bottom + 18,
        i * frame.axis.step);
  }
  return svg + fmt::format(
                   "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">"
                   "exact match, % of the documents</text>\n",
                   (frame.left + frame.right) / 2, frame.bottom + 40);
}

std::string whiskers(const RecitationCell& cell, const BarFrame& frame, double middle) {
  const double low = frame.across(range_of(cell).low), high = frame.across(range_of(cell).high);
  if (high - low < 0.5) return "";
  const std::string path = fmt::format("M{:.1f} {:.1f}H{:.1f}M{:.1f} {:.1f}v8M{:.1f} {:.1f}v8", low,
                                       middle, high, low, middle - 4, high, middle - 4);
  return fmt::format(R"(<path class="halo" d="{}"/><path class="whisker" d="{}"/>)", path, path);
}

std::string cell_bar(const PageData& data, const BarFrame& frame, const RecitationCell& cell,
                     double y) {
  const double middle = y + kBar / 2;
  if (cell.trials == 0)
    return fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">not tested</text>\n",
                       frame.left + 6, middle + 4.5);
  const double end = frame.across(cell.exact_percent.mean);
  const std::string loss = loss_text(data.loss(cell.variant));
  return fmt::format("<g><title>{}{}: {} % ({})</title>", escaped(data.report.groups[cell.group]),
                     loss.empty() ? "" : ", " + escaped(loss), percent_text(cell),
                     range_text(cell)) +
         bar(cell.variant, frame.left, y, end - frame.left, kBar) + whiskers(cell, frame, middle) +
         fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
                     std::max(end, frame.across(range_of(cell).high)) + 8, middle + 4.5,
                     percent_text(cell));
}

std::string description(const PageData& data) {
  std::string text;
  for (std::int64_t group = 0; group < data.groups(); ++group)
    for (std::int64_t v = 0; v < data.losses(); ++v) {
      const RecitationCell& cell = data.longest(v, group);
      const std::string loss = loss_text(data.loss(v));
      text += fmt::format("{}{}: {}. ", data.report.groups[group], loss.empty() ? "" : ", " + loss,
                          cell.trials == 0 ? "not tested" : percent_text(cell) + " %");
    }
  return text;
}

}  // namespace

PercentAxis percent_axis(double most) {
  constexpr std::array<double, 5> kSteps = {1, 2, 5, 10, 20};
  for (const double step : kSteps) {
    const double top = step * std::ceil(std::max(most, 5.0) / step - 1e-9);
    if (top <= 5 * step) return {.top = top, .step = step};
  }
  return {};
}

std::string bars_svg(const PageData& data) {
  const BarFrame frame(data);
  std::string svg = fmt::format(
      R"(<svg class="alone" viewBox="0 0 {} {:.0f}" role="img" )"
      R"(aria-labelledby="bars-title bars-desc">)"
      "\n<title id=\"bars-title\">Exact match by group</title><desc id=\"bars-desc\">{}</desc>\n",
      kWidth, frame.bottom + 50, escaped(description(data)));
  svg += patterns(data) + legend(data, frame) + grid(frame);
  const double height = BarFrame::group_height(data);
  for (std::int64_t group = 0; group < data.groups(); ++group) {
    const double top = frame.top + static_cast<double>(group) * height;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                       frame.left - 10, top + height / 2 + 4.5,
                       escaped(shortened(data.report.groups[group], kMostBarLabel, Keep::front)));
    for (std::int64_t v = 0; v < data.losses(); ++v)
      svg += cell_bar(data, frame, data.longest(v, group),
                      top + kBetweenGroups / 2 + static_cast<double>(v) * (kBar + kBetweenBars));
  }
  return svg + "</svg>\n";
}

}  // namespace axonn
