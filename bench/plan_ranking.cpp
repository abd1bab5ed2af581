#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/options.h"
#include "axonn/comm/mpi.h"
#include "axonn/plan/measure.h"
#include "axonn/train/dry_step.h"

namespace {

using namespace axonn;

Config read(const std::string& file) {
  Config config;
  OptionList list;
  Origins origins;
  list_options(config, list);
  read_toml(list, file, origins);
  return with_vocab(config);
}

Config on(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  validate(config);
  return resolved(config);
}

/// Every way to write `ranks` as a product of four.
std::vector<GridShape> grids_of(int ranks) {
  std::vector<GridShape> grids;
  for (int x = 1; x <= ranks; ++x)
    for (int y = 1; x * y <= ranks; ++y)
      for (int z = 1; x * y * z <= ranks; ++z)
        if (ranks % (x * y * z) == 0) grids.push_back({x, y, z, ranks / (x * y * z)});
  return grids;
}

/// Every `parts`-th of them from `part` on, so that a round is measured in pieces.
void measure(const std::string& file, std::size_t part, std::size_t parts) {
  const Config config = read(file);
  run_mpi([&](Communicator& world) {
    const auto grids = grids_of(world.size());
    for (std::size_t i = part; i < grids.size(); i += parts) {
      const MeasuredSteps steps =
          measure_steps(on(config, grids[i]), world, {.warmup = 1, .steps = 3});
      if (world.rank() == 0)
        std::printf("%s %.6f %ld\n", to_string(grids[i]).c_str(), steps.step_s,
                    static_cast<long>(steps.memory_bytes));
      std::fflush(stdout);
    }
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw UsageError("CONFIG PART PARTS");
  measure(argv[1], std::stoul(argv[2]), std::stoul(argv[3]));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 2;
}
