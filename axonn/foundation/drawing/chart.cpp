#include "axonn/foundation/drawing/chart.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "axonn/foundation/base/log.h"

namespace axonn {

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kRight = 730, kTop = 66, kBottom = 380;
constexpr double kLetter = 7, kLineHeight = 15;  // approximate sizes of the text
constexpr double kTitleX = 20, kGap = 8;         // of the y axis: its title; before its tick marks
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

double width_of(const std::string& text) { return kLetter * static_cast<double>(text.size()); }

/// Maps values of a chart to pixels.
struct Frame {
  const Chart& chart;
  double left = left_of(chart);

  double across(double value) const { return at(chart.x, value, left, kRight); }
  double up(double value) const {
    return at(chart.y, std::min(value, chart.y.high), kBottom, kTop);
  }

 private:
  /// Leaves room for the numbers of the y axis beside its title.
  static double left_of(const Chart& chart) {
    double widest = 0;
    for (const double mark : marks_of(chart.y, kMarksUp))
      widest = std::max(widest, width_of(number(mark)));
    return kTitleX + kLineHeight + widest + kGap;
  }
  static double at(const Chart::Axis& axis, double value, double first, double last) {
    const auto along = [&](double v) { return axis.logarithmic ? std::log10(v) : v; };
    const double low = along(axis.low), range = along(axis.high) - low;
    return first + (last - first) * (along(value) - low) / (range > 0 ? range : 1);
  }
};

std::string axes(const Frame& frame) {
  const Chart& chart = frame.chart;
  std::string svg;
  for (const double v : marks_of(chart.y, kMarksUp))
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        frame.left, kRight, frame.up(v), frame.up(v), frame.left - kGap, frame.up(v) + 4,
        number(v));
  for (const double v : marks_of(chart.x, kMarksAcross))
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       frame.across(v), kBottom + 20, number(v));
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (frame.left + kRight) / 2, kBottom + 44, escaped(chart.x.title));
  const double middle = (kTop + kBottom) / 2;
  return svg + fmt::format(
                   "<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\">{}"
                   "</text>\n",
                   kTitleX, middle, escaped(chart.y.title));
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
std::string legend(const Frame& frame) {
  std::string svg;
  double x = frame.left;
  for (const Chart::Line& line : frame.chart.lines) {
    if (line.name.empty()) continue;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"46\" y2=\"46\" stroke=\"{}\" stroke-width=\"3\"{}/>"
        "<text x=\"{}\" y=\"50\">{}</text>\n",
        x, x + 24, line.color, line.dashed ? " stroke-dasharray=\"6 4\"" : "", x + 30,
        escaped(line.name));
    x += 60 + width_of(line.name);
  }
  return svg;
}

/// A rectangle in pixels.
struct Box {
  double left, right, top, bottom;

  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// Finds places for the labels of points.
class Labels {
 public:
  explicit Labels(const Frame& frame) : frame_(frame) {
    constexpr double kRadius = 5;
    for (const Chart::Point& point : frame.chart.points) {
      const double x = frame.across(point.x), y = frame.up(point.y);
      dots_.push_back({x - kRadius, x + kRadius, y - kRadius, y + kRadius});
    }
    for (const Chart::Line& line : frame.chart.lines)
      for (std::size_t i = 1; i < line.points.size(); ++i)
        add_stroke(line.points[i - 1], line.points[i]);
  }

  /// The place with the least cost: near the point, in the picture, off other labels, and, unless
  /// that is far away, off points and lines.
  Box place(const Chart::Point& point) {
    constexpr int kFarthest = 40;  // lines of text
    const double width = width_of(point.label);
    std::optional<std::pair<int, Box>> best;
    for (int line = 0; line <= kFarthest && (!best || best->first > line); ++line)
      for (const Side side : {Side::right, Side::middle, Side::left})
        for (const int lines : {line, -line}) {
          const Box box = beside(point, width, side, lines);
          const int cost = line + cost_of(box);
          if (!best || cost < best->first) best = {cost, box};
        }
    labels_.push_back(best->second);
    return best->second;
  }

 private:
  enum class Side { right, middle, left };

  /// The place this many lines of text below the point. In the middle: within the picture's width.
  Box beside(const Chart::Point& point, double width, Side side, int lines) const {
    const double x = frame_.across(point.x), y = frame_.up(point.y) + lines * kLineHeight;
    double left = x + kGap;
    if (side == Side::left) left = x - kGap - width;
    if (side == Side::middle) left = std::min(x - width / 2, kWidth - width);
    return {left, left + width, y - kLineHeight / 2, y + kLineHeight / 2};
  }

  /// Covers the part of a line between two points, in values, with small boxes.
  void add_stroke(std::pair<double, double> from, std::pair<double, double> to) {
    constexpr double kWide = 2, kApart = 4;  // pixels
    const double x = frame_.across(from.first), y = frame_.up(from.second),
                 dx = frame_.across(to.first) - x, dy = frame_.up(to.second) - y;
    const int parts = static_cast<int>(std::hypot(dx, dy) / kApart) + 1;
    for (int i = 0; i <= parts; ++i) {
      const double px = x + dx * i / parts, py = y + dy * i / parts;
      strokes_.push_back({px - kWide, px + kWide, py - kWide, py + kWide});
    }
  }

  /// In lines of text that a label is rather moved by.
  int cost_of(const Box& box) const {
    constexpr int kOfLabel = 1000, kOfPicture = 100, kOfPoint = 3, kOfLine = 3;
    int cost = 0;
    if (box.left < frame_.left || box.right > kWidth || box.top < kTop || box.bottom > kBottom)
      cost += kOfPicture;
    for (const Box& label : labels_) cost += box.meets(label) ? kOfLabel : 0;
    for (const Box& dot : dots_) cost += box.meets(dot) ? kOfPoint : 0;
    const auto meets = [&](const Box& stroke) { return box.meets(stroke); };
    if (std::ranges::any_of(strokes_, meets)) cost += kOfLine;
    return cost;
  }

  const Frame& frame_;
  std::vector<Box> dots_, strokes_, labels_;
};

/// Draws the points, each with its label beside it.
std::string drawn(std::vector<Chart::Point> points, const Frame& frame) {
  Labels labels(frame);
  std::ranges::stable_sort(points, std::greater(), &Chart::Point::y);
  std::string svg, dots;
  for (const Chart::Point& point : points) {
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                        frame.across(point.x), frame.up(point.y), point.color);
    if (point.label.empty()) continue;
    const Box box = labels.place(point);
    svg += fmt::format(
        "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        (box.left + box.right) / 2, box.bottom - 3, escaped(point.label));
  }
  return svg + dots;  // points last, so that no label hides one
}

}  // namespace

std::string to_svg(const Chart& chart) {
  const Frame frame{chart};
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" )"
      R"(font-size="13"><style>text{{fill:#444}}.grid{{stroke:#ddd}})"
      R"(.label{{paint-order:stroke;stroke:#fff;stroke-width:3}})"
      R"(@media(prefers-color-scheme:dark){{text{{fill:#ccc}}.grid{{stroke:#444}})"
      R"(.label{{stroke:#1b1b1b}}.back{{fill:#1b1b1b}}}}</style>)"
      R"(<rect class="back" width="{}" height="{}" fill="#fff"/>)"
      "\n<text x=\"{}\" y=\"26\" font-size=\"16\">{}</text>\n",
      kWidth, kHeight, kWidth, kHeight, frame.left, escaped(chart.title));
  svg += axes(frame);
  for (const Chart::Line& line : chart.lines) svg += drawn(line, frame);
  svg += legend(frame);
  return svg + drawn(chart.points, frame) + "</svg>\n";
}

}  // namespace axonn
