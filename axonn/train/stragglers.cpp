#include "axonn/train/stragglers.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace axonn {

namespace {

// A smaller ratio, or a ratio of steps shorter than this (seconds), is noise.
constexpr double kWorthSaying = 1.25, kShortest = 0.1;

}  // namespace

std::string stragglers(const Grid& grid, double seconds) {
  const int ranks = grid.world().size();
  std::vector<double> all(ranks);
  grid.world().all_gather(buffer(std::span(all)), {&seconds, 1, DType::f64}, "stragglers").wait();
  const double mean = std::accumulate(all.begin(), all.end(), 0.0) / ranks;
  const auto slowest = std::ranges::max_element(all);
  if (mean < kShortest || *slowest < kWorthSaying * mean) return {};

  const Coords coords = coords_of(grid.shape(), static_cast<int>(slowest - all.begin()));
  std::string line = fmt::format("slowest: rank {} computes {:.2f} times as long as the mean",
                                 slowest - all.begin(), *slowest / mean);
  for (Axis axis : kAxes) {
    if (grid.extent(axis) == 1) continue;
    double sum = 0;
    for (int r = 0; r < ranks; ++r)
      if (coords_of(grid.shape(), r).at(axis) == coords.at(axis)) sum += all[r];
    line += fmt::format("; {} {}: {:.2f}", name_of(axis), coords.at(axis),
                        sum * grid.extent(axis) / ranks / mean);
  }
  return line;
}

}  // namespace axonn
