#include "axonn/plan/measure/scaling.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/drawing/chart.h"
#include "axonn/plan/measure/dry_step.h"

namespace axonn {

std::vector<GridShape> grids_of_ranks(const GridShape& base, const std::vector<int>& ranks,
                                      Axis grows) {
  const int others = base.ranks() / base.extent(grows);
  std::vector<GridShape> grids;
  for (const int count : ranks) {
    if (count < 1 || count % others != 0)
      refuse("--ranks ", count, " with grid ", to_string(base), " growing along ", name_of(grows),
             ": the other axes take ", others, " ranks; give multiples of ", others,
             ", or name the grids with --grids");
    const auto extent = [&](Axis axis) {
      return axis == grows ? count / others : base.extent(axis);
    };
    grids.push_back({extent(Axis::x), extent(Axis::y), extent(Axis::z), extent(Axis::data)});
  }
  return grids;
}

std::vector<PreparedRun> scaling_runs(const Config& base, const std::vector<GridShape>& grids,
                                      ScalingKind kind) {
  if (grids.empty()) refuse("no grid to measure: give --grids or --ranks");
  std::vector<PreparedRun> configs;
  const int first = grids.front().ranks();
  for (const GridShape& grid : grids) {
    Config config = base;
    config.training.batch_ramp.clear();  // steps of the largest batch are measured
    config.training.batch_stages.clear();
    std::int64_t& batch = config.training.global_batch;
    if (kind == ScalingKind::weak && batch * grid.ranks() % first != 0)
      refuse("weak scaling from ", first, " to ", grid.ranks(),
             " ranks: scaled with the ranks, [training] ", "global_batch ", batch,
             " is not a whole number; set it to a multiple of ", first);
    if (kind == ScalingKind::weak) batch = batch * grid.ranks() / first;
    config.parallelism.set_grid(grid);
    try {
      configs.push_back(prepared(std::move(config)));
      dry_step(configs.back(), 0);  // throws if the grid cannot cut the model
    } catch (const UsageError& error) {
      refuse("grid ", to_string(grid), ": ", error.what());
    }
  }
  return configs;
}

std::vector<ScalingPoint> scaling_points(const std::vector<BenchReport>& reports,
                                         int machine_cores) {
  std::vector<ScalingPoint> points;
  for (const BenchReport& report : reports) {
    ScalingPoint point{.report = report, .cores = report.grid.ranks() * report.threads};
    if (machine_cores > 0) point.cores = std::min(point.cores, machine_cores);
    const BenchReport& first = reports.front();
    const int first_cores = points.empty() ? point.cores : points.front().cores;
    point.ideal = first.tokens_per_s * point.cores / first_cores;
    point.efficiency = report.tokens_per_s / point.ideal;
    points.push_back(point);
  }
  return points;
}

std::string scaling_header() {
  return fmt::format("{:<12} {:>5} {:>7} {:>6} {:>10} {:>10} {:>10} {:>15} {:>9}\n", "x,y,z,data",
                     "ranks", "threads", "batch", "step ms", "tokens/s", "efficiency",
                     "exposed comm.", "of peak");
}

std::string scaling_row(const ScalingPoint& point) {
  const BenchReport& r = point.report;
  return fmt::format(
      "{:<12} {:>5} {:>7} {:>6} {:>10.1f} {:>10.0f} {:>8.1f} % {:>7.1f} ms {:>2.0f} % {:>7.1f} %\n",
      to_string(r.grid), r.grid.ranks(), r.threads, r.global_batch, r.step_s * 1e3, r.tokens_per_s,
      100 * point.efficiency, r.exposed_comm_s * 1e3, 100 * r.exposed_comm_s / r.step_s,
      r.percent_of_product_peak());
}

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
  ScalingChart chart{.title = fmt::format("{} scaling: {}", name_of(kind), title),
                     .counted = "ranks",
                     .best = "measured, best grid per number of ranks",
                     .ideal = "ideal, by number of cores"};
  for (const auto& [report, cores, ideal, efficiency] : points)
    chart.marks.push_back(
        {.count = report.grid.ranks(),
         .tokens_per_s = report.tokens_per_s,
         .ideal = ideal,
         .label = fmt::format("{}: {} ({:.0f} %)", to_string(report.grid),
                              format_count(std::llround(report.tokens_per_s)), 100 * efficiency)});
  return to_svg(chart);
}

std::string to_svg(const ScalingChart& scaling) {
  constexpr const char *kBest = "#2171b5", *kIdeal = "#969696";
  Chart chart{.title = scaling.title,
              .x = {.title = scaling.counted, .logarithmic = true},
              .y = {.title = "tokens per second, all " + scaling.counted, .logarithmic = true}};
  if (scaling.marks.empty()) return to_svg(chart);
  std::map<int, double> best, ideal;  // by count
  double low = INFINITY, high = 0;
  for (const ScalingMark& mark : scaling.marks) {
    best[mark.count] = std::max(best[mark.count], mark.tokens_per_s);
    ideal[mark.count] = std::max(ideal[mark.count], mark.ideal);
    low = std::min({low, mark.tokens_per_s, mark.ideal});
    high = std::max({high, mark.tokens_per_s, mark.ideal});
    chart.points.push_back({.x = static_cast<double>(mark.count),
                            .y = mark.tokens_per_s,
                            .color = kBest,
                            .label = mark.label});
  }
  for (const auto& [count, rate] : best) chart.x.marks.push_back(count);
  const auto fit = [](Chart::Axis& axis, double least, double greatest) {
    const double room = std::pow(10, 0.06 + 0.05 * std::log10(greatest / least));
    axis.low = least / room;
    axis.high = greatest * room;
  };
  fit(chart.x, chart.x.marks.front(), chart.x.marks.back());
  fit(chart.y, low, high);
  chart.lines = {{.points = {ideal.begin(), ideal.end()},
                  .color = kIdeal,
                  .dashed = true,
                  .name = scaling.ideal},
                 {.points = {best.begin(), best.end()}, .color = kBest, .name = scaling.best}};
  return to_svg(chart);
}

}  // namespace axonn
