#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/train/benchmark.h"
#include "axonn/train/config.h"

namespace axonn {

/// weak: the batch grows with the ranks. strong: it stays.
enum class ScalingKind { weak, strong };

inline constexpr std::array<std::string_view, 2> kScalingKinds = {"weak", "strong"};

/// base's grid with the extent of one axis such that there are as many ranks as asked, each time.
/// Errors: UsageError where the other axes do not divide a number; it says what would do.
std::vector<GridShape> grids_of_ranks(const GridShape& base, const std::vector<int>& ranks,
                                      Axis grows);

/// The config as it runs on each of the grids, validated and resolved. Strong: base's global_batch.
/// Weak: that times the ranks over the first grid's. A micro_batch that is set stays.
/// Errors: UsageError that names the grid and what would do, where one cannot cut the model or the
/// batch. base has the model's sizes.
std::vector<Config> scaling_configs(const Config& base, const std::vector<GridShape>& grids,
                                    ScalingKind kind);

/// One grid's figures, beside the first's.
struct ScalingPoint {
  BenchReport report;
  int cores = 1;          ///< compute threads of all ranks, but not more than the machine has
  double ideal = 0;       ///< tokens/s, if each core did what each of the first grid's does
  double efficiency = 0;  ///< tokens/s over that
};

/// The measured grids in their order. machine_cores: what all ranks share, where they are threads
/// of one process; 0 if each has its own.
std::vector<ScalingPoint> scaling_points(const std::vector<BenchReport>& reports,
                                         int machine_cores);

/// A line for each grid, below scaling_header(), both with the line's end.
std::string scaling_header();
std::string scaling_row(const ScalingPoint& point);

/// {"scaling": "weak", "points": [...]}: each point as to_json(BenchReport), and what is above.
std::string scaling_json(ScalingKind kind, const std::vector<ScalingPoint>& points);

/// The curve: tokens/s over ranks, every grid a point, the ideal as a dashed line.
std::string scaling_svg(ScalingKind kind, const std::string& title,
                        const std::vector<ScalingPoint>& points);

}  // namespace axonn
