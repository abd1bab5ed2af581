#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/plan/measure/benchmark.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// weak: global_batch grows with the number of ranks. strong: global_batch stays the same.
enum class ScalingKind { weak, strong };

inline constexpr std::array<std::string_view, 2> kScalingKinds = {"weak", "strong"};

inline std::string_view name_of(ScalingKind kind) { return kScalingKinds[static_cast<int>(kind)]; }

/// Returns base's grid for each number of ranks, with the extent of one axis changed to reach it.
/// Throws UsageError if the other axes do not divide a number; it names numbers that work.
std::vector<GridShape> grids_of_ranks(const GridShape& base, const std::vector<int>& ranks,
                                      Axis grows);

/// Returns the run for each of the grids. strong keeps base's
/// global_batch; weak multiplies it by the ranks over the first grid's. A micro_batch that is set
/// stays. base must have the model's sizes. Throws UsageError if a grid cannot cut the model or the
/// batch; it names the grid and values that work.
std::vector<PreparedRun> scaling_runs(const Config& base, const std::vector<GridShape>& grids,
                                      ScalingKind kind);

/// Results of one grid, relative to the first.
struct ScalingPoint {
  BenchReport report;
  int cores = 1;          ///< compute threads of all ranks, at most the machine's cores
  double ideal = 0;       ///< tokens/s if each core were as fast as on the first grid
  double efficiency = 0;  ///< tokens/s divided by ideal
};

/// Returns the measured grids in their order. machine_cores is the number of cores that all ranks
/// share, if they are threads of one process; 0 if each rank has its own machine.
std::vector<ScalingPoint> scaling_points(const std::vector<BenchReport>& reports,
                                         int machine_cores);

/// The table's header, and its line for one grid. Both end with a newline.
std::string scaling_header();
std::string scaling_row(const ScalingPoint& point);

/// {"scaling": "weak", "points": [...]}: each point as in to_json(BenchReport), with cores,
/// ideal_tokens_per_s and efficiency.
std::string scaling_json(ScalingKind kind, const std::vector<ScalingPoint>& points);

/// Draws tokens/s over ranks: every grid is a point, the ideal a dashed line.
std::string scaling_svg(ScalingKind kind, const std::string& title,
                        const std::vector<ScalingPoint>& points);

/// A point of a scaling chart.
struct ScalingMark {
  int count = 1;  ///< of ranks, or of devices
  double tokens_per_s = 0, ideal = 0;
  std::string label;
};

struct ScalingChart {
  std::string title;
  std::string counted;      ///< "ranks"
  std::string best, ideal;  ///< names of the two lines
  std::vector<ScalingMark> marks = {};
};

/// Draws tokens/s: every mark is a point, a line joins the best of each count, and a dashed line
/// the ideal.
std::string to_svg(const ScalingChart& chart);

}  // namespace axonn
