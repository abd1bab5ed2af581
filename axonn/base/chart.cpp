#include "axonn/base/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/base/log.h"

namespace axonn {

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 94, kRight = 730, kTop = 66, kBottom = 380;
constexpr double kLetter = 7, kLineHeight = 15;  // approximate sizes of the text
constexpr int kMarksAcross = 8, kMarksUp = 8;    // approximate
constexpr std::size_t kMostPoints = 1500;        // more could not be told apart at this width

/// Whether an axis has tick marks at 1, 2 and 5 times powers of ten, rather than at equal steps.
bool spans_powers(const Chart::Axis& axis) {
  return axis.logarithmic && axis.high >= 10 * axis.low;
}

/// Returns 1, 2 or 5 times a power of ten, so that about `about` steps of it cover the axis.
double step_of(const Chart::Axis& axis, int about) {
  const double raw = std::max(axis.high - axis.low, 1e-9) / about,
               power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (raw <= factor * power) step = factor * power;
  return axis.integers ? std::max(step, 1.0) : step;
}

/// Returns the tick marks of an axis in ascending order.
std::vector<double> marks_of(const Chart::Axis& axis, int about) {
  std::vector<double> found;
  if (!axis.marks.empty()) return axis.marks;
  if (spans_powers(axis)) {
    for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high;
         power *= 10)
      for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= axis.low && factor * power <= axis.high)
          found.push_back(factor * power);
    return found;
  }
  const double step = step_of(axis, about);
  for (double k = std::ceil(axis.low / step); k * step <= axis.high + 1e-9 * step; ++k)
    found.push_back(k * step);
  return found;
}

/// Maps values of a chart to pixels.
struct Frame {
  const Chart& chart;

  double across(double value) const { return at(chart.x, value, kLeft, kRight); }
  double up(double value) const {
    return at(chart.y, std::min(value, chart.y.high), kBottom, kTop);
  }

 private:
  static double at(const Chart::Axis& axis, double value, double first, double last) {
    const auto along = [&](double v) { return axis.logarithmic ? std::log10(v) : v; };
    const double low = along(axis.low), range = along(axis.high) - low;
    return first + (last - first) * (along(value) - low) / (range > 0 ? range : 1);
  }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

std::string number(double value) {
  const double rounded = std::round(value * 1e6) / 1e6;
  if (rounded >= 1000 && rounded == std::floor(rounded))
    return format_count(static_cast<std::int64_t>(rounded));
  return fmt::format("{:g}", rounded);
}

std::string axes(const Frame& frame) {
  const Chart& chart = frame.chart;
  std::string svg;
  for (const double v : marks_of(chart.y, kMarksUp))
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kRight, frame.up(v), frame.up(v), kLeft - 8, frame.up(v) + 4, number(v));
  for (const double v : marks_of(chart.x, kMarksAcross))
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       frame.across(v), kBottom + 20, number(v));
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kRight) / 2, kBottom + 44, escaped(chart.x.title));
  const double middle = (kTop + kBottom) / 2;
  return svg + fmt::format(
                   "<text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">{}"
                   "</text>\n",
                   middle, escaped(chart.y.title));
}

std::string drawn(const Chart::Line& line, const Frame& frame) {
  const std::size_t stride = line.points.size() / kMostPoints + 1;
  std::string points;
  for (std::size_t i = 0; i < line.points.size(); i += stride)
    points += fmt::format("{:.1f},{:.1f} ", frame.across(line.points[i].first),
                          frame.up(line.points[i].second));
  return fmt::format(
      "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{} points=\"{}\"/>\n", line.color,
      line.width, line.dashed ? " stroke-dasharray=\"6 4\"" : "", points);
}

/// Draws the legend as a row below the title.
std::string legend(const Chart& chart) {
  std::string svg;
  double x = kLeft;
  for (const Chart::Line& line : chart.lines) {
    if (line.name.empty()) continue;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"46\" y2=\"46\" stroke=\"{}\" stroke-width=\"3\"{}/>"
        "<text x=\"{}\" y=\"50\">{}</text>\n",
        x, x + 24, line.color, line.dashed ? " stroke-dasharray=\"6 4\"" : "", x + 30,
        escaped(line.name));
    x += 60 + kLetter * static_cast<double>(line.name.size());
  }
  return svg;
}

/// Draws the points, with labels to their right, or to their left where the picture ends. A label
/// that would overlap another moves down.
std::string drawn(std::vector<Chart::Point> points, const Frame& frame) {
  struct Box {
    double left, right, y;
  };
  std::vector<Box> taken;
  std::ranges::stable_sort(points, std::greater(), &Chart::Point::y);
  std::string svg, dots;
  for (const Chart::Point& point : points) {
    const double x = frame.across(point.x), y = frame.up(point.y),
                 width = kLetter * static_cast<double>(point.label.size());
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y,
                        point.color);
    if (point.label.empty()) continue;
    const bool right = x + 8 + width <= kWidth;
    Box box{right ? x + 8 : x - 8 - width, right ? x + 8 + width : x - 8, y + 4};
    for (bool moved = true; moved;) {
      moved = false;
      for (const Box& other : taken)
        if (box.left < other.right && other.left < box.right &&
            std::abs(box.y - other.y) < kLineHeight) {
          box.y = other.y + kLineHeight;
          moved = true;
        }
    }
    taken.push_back(box);
    svg += fmt::format(
        "<rect class=\"back\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#fff\" "
        "opacity=\"0.9\"/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
        box.left - 2, box.y - kLineHeight + 4, width + 4, kLineHeight, right ? box.left : box.right,
        box.y, right ? "start" : "end", escaped(point.label));
  }
  return svg + dots;  // points last, so that no label hides one
}

}  // namespace

Chart::Axis widened(Chart::Axis axis) {
  if (spans_powers(axis)) {
    const double below = std::pow(10, std::floor(std::log10(axis.low))),
                 above = std::pow(10, std::floor(std::log10(axis.high)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (factor * below <= axis.low) axis.low = factor * below;
    for (const double factor : {10.0, 5.0, 2.0, 1.0})
      if (factor * above >= axis.high) axis.high = factor * above;
    return axis;
  }
  const double step = step_of(axis, kMarksUp);
  const double low = std::floor(axis.low / step) * step;
  if (low > 0 || !axis.logarithmic) axis.low = low;
  axis.high = std::ceil(axis.high / step) * step;
  return axis;
}

std::string to_svg(const Chart& chart) {
  const Frame frame{chart};
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" )"
      R"(font-size="13"><style>text{{fill:#444}}.grid{{stroke:#ddd}})"
      R"(@media(prefers-color-scheme:dark){{text{{fill:#ccc}}.grid{{stroke:#444}})"
      R"(.back{{fill:#1b1b1b}}}}</style><rect class="back" width="{}" height="{}" fill="#fff"/>)"
      "\n<text x=\"{}\" y=\"26\" font-size=\"16\">{}</text>\n",
      kWidth, kHeight, kWidth, kHeight, kLeft, escaped(chart.title));
  svg += axes(frame);
  for (const Chart::Line& line : chart.lines) svg += drawn(line, frame);
  svg += legend(chart);
  return svg + drawn(chart.points, frame) + "</svg>\n";
}

}  // namespace axonn
