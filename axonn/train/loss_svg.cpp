#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/train/chart.h"
#include "axonn/train/metrics.h"

namespace axonn {

namespace {

/// Smooths a curve: the mean of a forward and a backward exponential moving average, each over
/// about a hundredth of the run, so that the result neither lags nor leads.
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

std::vector<std::pair<double, double>> points_of(const MetricsFile::Curve& curve) {
  std::vector<std::pair<double, double>> points;
  for (const auto& [step, value] : curve) points.emplace_back(step, value);
  return points;
}

}  // namespace

std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation) {
  Chart chart{.title = title,
              .x = {.title = "step", .integers = true},
              .y = {.title = "loss (nats per token)"}};
  if (!losses.empty()) {
    const auto value = [](const auto& point) { return point.second; };
    chart.x.low = static_cast<double>(losses.front().first);
    chart.x.high = std::max(chart.x.low + 1, static_cast<double>(losses.back().first));
    chart.y.low = std::ranges::min(losses, {}, value).second;
    chart.y.high = std::ranges::max(losses, {}, value).second;
    for (const auto& point : validation) chart.y.low = std::min(chart.y.low, point.second);
    const double margin = std::max(0.05 * (chart.y.high - chart.y.low), 1e-3);
    chart.y.low -= margin;
    chart.y.high += margin;
    chart.lines.push_back({.points = points_of(losses), .color = "#9ecae1", .width = 1});
    chart.lines.push_back(
        {.points = points_of(smoothed(losses)), .color = "#2171b5", .name = "training loss"});
  }
  if (!validation.empty())
    chart.lines.push_back({.points = points_of(validation),
                           .color = "#e6550d",
                           .name = fmt::format("validation {:.3f}", validation.back().second)});
  for (const auto& [step, loss] : validation)
    chart.points.push_back({.x = static_cast<double>(step), .y = loss, .color = "#e6550d"});
  return to_svg(chart);
}

}  // namespace axonn
