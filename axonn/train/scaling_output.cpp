// Prints a scaling run as JSON and draws it as SVG.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/log.h"
#include "axonn/train/chart.h"
#include "axonn/train/scaling.h"

namespace axonn {

namespace {

constexpr const char* kMeasured = "#2171b5";
constexpr const char* kIdeal = "#969696";

std::string_view name_of(ScalingKind kind) { return kScalingKinds[static_cast<int>(kind)]; }

/// Makes the axis span ranks low to high, with a margin at both ends.
void set_range(Chart::Axis& axis, int low, int high) {
  const double room = std::pow(10, 0.06 + 0.05 * std::log10(high / low));
  axis.low = low / room;
  axis.high = high * room;
}

}  // namespace

std::string scaling_json(ScalingKind kind, const std::vector<ScalingPoint>& points) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ScalingPoint& point : points) {
    auto one = nlohmann::ordered_json::parse(to_json(point.report));
    one["cores"] = point.cores;
    one["ideal_tokens_per_s"] = point.ideal;
    one["efficiency"] = point.efficiency;
    all.push_back(std::move(one));
  }
  return nlohmann::ordered_json{{"scaling", name_of(kind)}, {"points", all}}.dump(2) + "\n";
}

std::string scaling_svg(ScalingKind kind, const std::string& title,
                        const std::vector<ScalingPoint>& points) {
  Chart chart{.title = fmt::format("{} scaling: {}", name_of(kind), title),
              .x = {.title = "ranks", .logarithmic = true},
              .y = {.title = "tokens per second, all ranks", .logarithmic = true}};
  std::map<int, double> best, ideal;  // by ranks
  double low = INFINITY, high = 0;
  for (const ScalingPoint& point : points) {
    const int ranks = point.report.grid.ranks();
    const double rate = point.report.tokens_per_s;
    best[ranks] = std::max(best[ranks], rate);
    ideal[ranks] = std::max(ideal[ranks], point.ideal);
    low = std::min({low, rate, point.ideal});
    high = std::max({high, rate, point.ideal});
    chart.points.push_back(
        {.x = static_cast<double>(ranks),
         .y = rate,
         .color = kMeasured,
         .label = fmt::format("{}: {} ({:.0f} %)", to_string(point.report.grid),
                              format_count(std::llround(rate)), 100 * point.efficiency)});
  }
  if (points.empty()) return to_svg(chart);
  chart.y.low = low * 0.97;
  chart.y.high = high * 1.03;
  chart.y = widened(chart.y);
  set_range(chart.x, best.begin()->first, best.rbegin()->first);
  Chart::Line as_ideal{.color = kIdeal, .dashed = true, .name = "ideal, by number of cores"};
  Chart::Line as_measured{.color = kMeasured, .name = "measured, best grid per number of ranks"};
  for (const auto& [ranks, rate] : ideal) {
    chart.x.marks.push_back(ranks);
    as_ideal.points.emplace_back(ranks, rate);
    as_measured.points.emplace_back(ranks, best.at(ranks));
  }
  chart.lines = {as_ideal, as_measured};
  return to_svg(chart);
}

}  // namespace axonn
