#include "axonn/train/scaling.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/train/dry_step.h"

namespace axonn {

namespace {

std::int64_t batch_on(const Config& base, const GridShape& first, const GridShape& grid,
                      ScalingKind kind) {
  const std::int64_t batch = base.training.global_batch;
  if (kind == ScalingKind::strong) return batch;
  if (batch * grid.ranks() % first.ranks() != 0)
    refuse("weak scaling from ", first.ranks(), " to ", grid.ranks(),
           " ranks: scaled with the ranks, [training] ", "global_batch ", batch,
           " is not a whole number; set it to a multiple of ", first.ranks());
  return batch * grid.ranks() / first.ranks();
}

Config config_on(Config config, const GridShape& grid, std::int64_t batch) {
  config.parallelism.set_grid(grid);
  config.training.global_batch = batch;
  try {
    validate(config);
    Config here = resolved(std::move(config));
    dry_step(with_vocab(here), 0);  // throws if the grid cannot cut the model
    return here;
  } catch (const UsageError& error) {
    refuse("grid ", to_string(grid), ": ", error.what());
  }
}

}  // namespace

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

std::vector<Config> scaling_configs(const Config& base, const std::vector<GridShape>& grids,
                                    ScalingKind kind) {
  if (grids.empty()) refuse("no grid to measure: give --grids or --ranks");
  std::vector<Config> configs;
  for (const GridShape& grid : grids)
    configs.push_back(config_on(base, grid, batch_on(base, grids.front(), grid, kind)));
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

}  // namespace axonn
