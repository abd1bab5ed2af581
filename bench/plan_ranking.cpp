#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/plan/measure/benchmark.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/search.h"
#include "axonn/ranks/comm/mpi/mpi.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"

// Whether the grids that the planner ranks first are the fastest: compares the measured time of
// every grid with the estimate for a machine file. bench/plan_ranking.sh runs it on emulated hosts.
//
//   mpirun -np N bench_plan_ranking measure CONFIG PART PARTS    measures every PARTS-th grid of N
//                                       ranks from number PART on, and prints a line for each:
//                                       seconds of a step, of which waiting, and bytes
//   bench_plan_ranking compare CONFIG MACHINE FILE...    FILE: output of measure, of any round

namespace {

using namespace axonn;

Config read(const std::string& file) {
  Config config;
  OptionList list;
  Origins origins;
  list_options(config, list);
  read_toml(list, file, origins);
  return config;
}

PreparedRun on(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  return prepared(std::move(config));
}

void measure(const std::string& file, std::size_t part, std::size_t parts) {
  const Config config = read(file);
  run_mpi([&](Communicator& world) {
    const auto grids = grids_of(world.size());
    for (std::size_t i = part; i < grids.size(); i += parts) {
      const MeasuredSteps steps =
          measure_steps(on(config, grids[i]), world, {.steps = 5, .seconds = 1.5});
      if (world.rank() != 0) continue;
      std::printf("%s %.6f %.6f %ld\n", to_string(grids[i]).c_str(), steps.step_s, steps.waited_s,
                  static_cast<long>(steps.memory_bytes));
      for (const auto& [kind, seconds] : steps.waited_by)
        std::fprintf(stderr, "%s  %s %.6f\n", to_string(grids[i]).c_str(), kind.c_str(), seconds);
      std::fflush(stdout);
    }
  });
}

struct Grid {
  std::string shape;
  double measured_s = 0, waited_s = 0, predicted_s = 0;  // measured: medians of the rounds
  StepTime predicted;
  long measured_bytes = 0, predicted_bytes = 0;
  int measured_place = 0, predicted_place = 0;  // from 1
};

std::vector<Grid> read_grids(const std::string& file, const std::string& machine_file,
                             const std::vector<std::string>& rounds) {
  std::map<std::string, std::vector<double>> seconds, waits;
  std::map<std::string, long> bytes;
  for (const std::string& round : rounds) {
    std::ifstream lines(round);
    std::string shape;
    double taken = 0, waited = 0;
    long held = 0;
    while (lines >> shape >> taken >> waited >> held) {
      seconds[shape].push_back(taken);
      waits[shape].push_back(waited);
      bytes[shape] = held;
    }
  }
  const Config config = read(file);
  const Machine machine = read_machine(machine_file);
  std::vector<Grid> grids;
  for (const auto& [shape, taken] : seconds) {
    const Prediction predicted = predict(on(config, parse_grid(shape)), machine);
    grids.push_back({.shape = shape,
                     .measured_s = spread_of(taken).median,
                     .waited_s = spread_of(waits[shape]).median,
                     .predicted_s = predicted.time.step_s,
                     .predicted = predicted.time,
                     .measured_bytes = bytes[shape],
                     .predicted_bytes = predicted.memory_bytes});
  }
  std::ranges::sort(grids, {}, &Grid::predicted_s);
  for (std::size_t i = 0; i < grids.size(); ++i) grids[i].predicted_place = static_cast<int>(i) + 1;
  std::ranges::sort(grids, {}, &Grid::measured_s);
  for (std::size_t i = 0; i < grids.size(); ++i) grids[i].measured_place = static_cast<int>(i) + 1;
  return grids;
}

/// Prints the table, the fastest grid first. Returns whether the plan's first choice takes at most
/// 10 % longer than the fastest grid and enough of the plan's best five are among the fastest.
bool compare(const std::vector<Grid>& grids) {
  std::printf("%-10s %21s %29s\n", "", "measured ms", "planned ms");
  std::printf("%-10s %5s %7s %7s %13s %7s %7s\n", "grid", "place", "step", "waiting", "place",
              "step", "waiting");
  double apart = 0;
  for (const Grid& grid : grids) {
    std::printf("%-10s %5d %7.0f %7.0f %13d %7.0f %7.0f\n", grid.shape.c_str(), grid.measured_place,
                1e3 * grid.measured_s, 1e3 * grid.waited_s, grid.predicted_place,
                1e3 * grid.predicted_s, 1e3 * grid.predicted.exposed_s());
    apart = std::max(apart, std::abs(1.0 * grid.predicted_bytes / grid.measured_bytes - 1));
  }
  constexpr int kBest = 5, kAmong = 6, kEnough = 4;
  const double fastest = grids.front().measured_s,
               sixth = grids[std::min<std::size_t>(kAmong, grids.size()) - 1].measured_s;
  const Grid& first = *std::ranges::find(grids, 1, &Grid::predicted_place);
  const auto good = std::ranges::count_if(grids, [&](const Grid& grid) {
    return grid.predicted_place <= kBest && grid.measured_s <= 1.05 * sixth;
  });
  std::printf("the plan's first choice, %s, takes %.1f %% longer than the fastest grid\n",
              first.shape.c_str(), 100 * (first.measured_s / fastest - 1));
  std::printf("of the plan's best %d, %d are among the %d fastest, or within 5 %% of the sixth\n",
              kBest, static_cast<int>(good), kAmong);
  std::printf("memory: prediction and measurement differ by at most %.2f %%\n", 100 * apart);
  return first.measured_s <= 1.1 * fastest && good >= kEnough;
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[0] == "measure") {
    measure(words[1], std::stoul(words[2]), std::stoul(words[3]));
    return 0;
  }
  if (words.size() >= 4 && words[0] == "compare")
    return compare(read_grids(words[1], words[2], {words.begin() + 3, words.end()})) ? 0 : 1;
  refuse("usage: bench_plan_ranking measure CONFIG PART PARTS, or compare CONFIG MACHINE FILE...");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  }
}
