#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/train/metrics.h"

namespace axonn {

namespace {

constexpr double kWidth = 720, kHeight = 400;
constexpr double kLeft = 60, kRight = 700, kTop = 44, kBottom = 350;
constexpr std::size_t kMostPoints = 1500;  // more would not be seen at this width

struct Frame {
  double first_step, last_step, low, high;
  double x(double step) const {
    return kLeft + (kRight - kLeft) * (step - first_step) / std::max(1.0, last_step - first_step);
  }
  double y(double value) const { return kBottom - (kBottom - kTop) * (value - low) / (high - low); }
};

/// 1, 2 or 5 times a power of ten, so that about `parts` of it cover the range.
double tick(double range, int parts) {
  const double raw = range / parts, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string polyline(const Frame& frame, const MetricsFile::Curve& curve, const char* style) {
  const std::size_t stride = curve.size() / kMostPoints + 1;
  std::string points;
  for (std::size_t i = 0; i < curve.size(); i += stride)
    points += fmt::format("{:.1f},{:.1f} ", frame.x(static_cast<double>(curve[i].first)),
                          frame.y(std::min(curve[i].second, frame.high)));
  return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, points);
}

/// The mean of an exponential moving average forwards and one backwards, each over about a
/// hundredth of the run, so that the curve neither lags nor leads.
MetricsFile::Curve smoothed(const MetricsFile::Curve& curve) {
  const double keep = std::exp(-1.0 / std::max(1.0, static_cast<double>(curve.size()) / 100));
  MetricsFile::Curve forward = curve, backward = curve;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const std::size_t j = curve.size() - 1 - i;
    forward[i].second = keep * forward[i - 1].second + (1 - keep) * curve[i].second;
    backward[j].second = keep * backward[j + 1].second + (1 - keep) * curve[j].second;
  }
  for (std::size_t i = 0; i < curve.size(); ++i)
    forward[i].second = (forward[i].second + backward[i].second) / 2;
  return forward;
}

std::string axes(const Frame& frame) {
  std::string svg;
  const double dy = tick(frame.high - frame.low, 6);
  for (double v = std::ceil(frame.low / dy) * dy; v <= frame.high + 1e-9; v += dy)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, kRight, frame.y(v), frame.y(v), kLeft - 8, frame.y(v) + 4,
        std::round(v * 1e6) / 1e6);
  const double dx = std::max(1.0, tick(std::max(1.0, frame.last_step - frame.first_step), 8));
  for (double s = std::ceil(frame.first_step / dx) * dx; s <= frame.last_step; s += dx)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n",
                       frame.x(s), kBottom + 20, s);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n",
                     (kLeft + kRight) / 2, kBottom + 40);
  return svg;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation) {
  Frame frame{0, 1, 0, 1};
  if (!losses.empty()) {
    const auto value = [](const auto& point) { return point.second; };
    frame = {static_cast<double>(losses.front().first), static_cast<double>(losses.back().first),
             std::ranges::min(losses, {}, value).second,
             std::ranges::max(losses, {}, value).second};
    for (const auto& point : validation) frame.low = std::min(frame.low, point.second);
    const double margin = std::max(0.05 * (frame.high - frame.low), 1e-3);
    frame.low -= margin;
    frame.high += margin;
  }
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" )"
      R"(font-size="13"><style>text{{fill:#444}}.grid{{stroke:#ddd}})"
      R"(@media(prefers-color-scheme:dark){{text{{fill:#ccc}}.grid{{stroke:#444}})"
      R"(.back{{fill:#1b1b1b}}}}</style><rect class="back" width="{}" height="{}" fill="#fff"/>)"
      "\n<text x=\"{}\" y=\"26\" font-size=\"16\">{}</text>\n",
      kWidth, kHeight, kWidth, kHeight, kLeft, escaped(title));
  svg += axes(frame);
  svg += polyline(frame, losses, R"(stroke="#9ecae1" stroke-width="1")");
  svg += polyline(frame, smoothed(losses), R"(stroke="#2171b5" stroke-width="2")");
  svg += polyline(frame, validation, R"(stroke="#e6550d" stroke-width="2")");
  for (const auto& [step, value] : validation)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"#e6550d\"/>\n",
                       frame.x(static_cast<double>(step)), frame.y(value));
  const auto legend = [&](double x, const char* color, const std::string& text) {
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"60\" y2=\"60\" stroke=\"{}\" stroke-width=\"3\"/>"
        "<text x=\"{}\" y=\"64\">{}</text>\n",
        x, x + 24, color, x + 30, text);
  };
  if (!losses.empty()) legend(460, "#2171b5", "training loss");
  if (!validation.empty())
    legend(580, "#e6550d", fmt::format("validation {:.3f}", validation.back().second));
  return svg + "</svg>\n";
}

}  // namespace axonn
