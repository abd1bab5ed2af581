#include "axonn/base/check.h"

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/comm/threads/threads.h"
#include "axonn/measure/compare.h"
#include "axonn/ops/cpu/matmul/products.h"
#include "axonn/train/launch.h"
#include "axonn/train/stored_config.h"

namespace axonn {

namespace {

constexpr const char* kCheckExamples =
    R"(Compares each grid with the first one: losses, global gradient norms, and at the first step
the gradient norm of every parameter. Shows the largest relative differences. Under mpirun, grids
with as many ranks as were started run over MPI, others as threads of rank 0.

Examples:
  axonn check configs/tiny.toml
  axonn check configs/tiny.toml --grids "1,1,1,1 2,2,1,1 1,2,2,2" --steps 10
  axonn check configs/tiny.toml --training.dtype bf16 --isa avx2

Exit codes: 0 all agree, 1 some differ, 2 usage error.)";

/// The config for this grid: deterministic, with the grid's default micro-batch.
Config config_on(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  config.training.micro_batch = 0;
  config.training.deterministic = true;
  validate(config);
  return resolved(config);
}

/// The traces of all grids. Under a launcher only rank 0 gets them; other ranks return none.
std::vector<GridTrace> traces(const Config& config, const std::vector<GridShape>& grids,
                              int steps) {
  std::vector<GridTrace> all;
  const auto trace = [&](const Config& here, Communicator& world) {
    GridTrace mine = trace_run(here, world, nullptr, steps, progress_of(config));
    if (world.rank() == 0) all.push_back(std::move(mine));
  };
  const auto trace_on_threads = [&](const Config& here) {
    run_ranks(here.parallelism.grid().ranks(), [&](Communicator& world) { trace(here, world); },
              {.timeout_seconds = here.parallelism.timeout_seconds});
  };
  if (!launches_mpi(config)) {
    for (const GridShape& grid : grids) trace_on_threads(config_on(config, grid));
    return all;
  }
  launch(config, [&](Communicator& world) {
    for (const GridShape& grid : grids) {
      const Config here = config_on(config, grid);
      if (grid.ranks() == world.size())
        trace(here, world);
      else if (world.rank() == 0)
        trace_on_threads(here);
    }
    world.barrier("check");
  });
  return all;
}

}  // namespace

int run_check(const Arguments& arguments) {
  CLI::App app("Runs the same training on several grids and compares.", "axonn check");
  app.footer(kCheckExamples);
  std::string grids_text = "1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1 1,1,1,2 2,2,2,1";
  int steps = 10;
  app.add_option("--grids", grids_text, "grids x,y,z,data, separated by spaces")
      ->capture_default_str();
  app.add_option("--steps", steps, "steps on each grid")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  std::string isa;
  app.add_option("--isa", isa,
                 "limit the instructions of matrix products, to compute as an older CPU would")
      ->check(CLI::IsMember(cpu::instruction_limits()));
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  if (!isa.empty()) cpu::limit_library_instructions(isa);
  const std::vector<GridShape> grids = parse_grids(grids_text);
  if (grids.size() < 2)
    refuse("--grids needs at least two grids, such as \"1,1,1,1 2,2,1,1\"; got '", grids_text, "'");
  const std::vector<GridTrace> all =
      traces(with_stored_model(loaded->config, loaded->origins), grids, steps);
  if (all.empty()) return 0;

  const Tolerance tolerance = tolerance_of(loaded->config.training.dtype);
  std::vector<GridComparison> comparisons;
  bool agree = true;
  for (const GridTrace& trace : all) {
    comparisons.push_back(compare(all.front(), trace, tolerance));
    agree = agree && comparisons.back().agrees;
  }
  if (!isa.empty()) std::cout << "products use " << cpu::library_instructions() << '\n';
  std::cout << "reference " << to_string(grids.front()) << ", " << steps << " steps: loss "
            << all.front().losses.front() << " to " << all.front().losses.back() << "\n\n"
            << comparison_table(comparisons, tolerance)
            << (agree ? "\nall grids agree\n" : "\nthe grids do NOT agree\n");
  return agree ? 0 : kFailed;
}

}  // namespace axonn
