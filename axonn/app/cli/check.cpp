#include "axonn/foundation/base/check.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/start/start_run.h"
#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/coordinate_check.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

constexpr const char* kCheckExamples =
    R"(Compares each grid with the first one: losses, global gradient norms, and at the first step
the gradient norm of every parameter. Shows the largest relative differences. Under mpirun, grids
with as many ranks as were started run over MPI, others as threads of rank 0. On GPUs, all grids
are compared with the first one on the CPU. Of --parallelism.context, a grid uses the greatest
common divisor with its z, and of --parallelism.experts likewise. Routers repeat the choices of the
first grid, since where two scores are almost equal they might choose otherwise.

Examples:
  axonn check configs/tiny.toml
  axonn check configs/tiny.toml --grids "1,1,1,1 2,2,1,1 1,2,2,2" --steps 10
  axonn check configs/tiny.toml --training.dtype bf16 --isa avx2
  axonn check configs/tiny.toml --parallelism.device cuda
  axonn check configs/tiny.toml --mup --model.mup_base 96 --widths 96,192,384
      instead, models of other widths: whether each layer's outputs change alike (muP)

Exit codes: 0 all agree, 1 some differ, 2 usage error.)";

/// The run on this grid: deterministic, with the grid's default micro-batch, and as many ranks
/// that share sequences and experts as z allows.
PreparedRun run_on(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  config.parallelism.context = std::gcd(config.parallelism.context, grid.z);
  config.parallelism.experts = static_cast<int>(
      std::gcd(std::gcd<std::int64_t>(config.parallelism.experts, grid.z), config.model.experts));
  config.training.micro_batch = 0;
  config.training.deterministic = true;
  return within_budget(prepared(std::move(config)));
}

/// The traces of the first grid on the CPU, if the config's device is another, and of all grids on
/// that. Under a launcher only rank 0 gets them; other ranks return none.
std::vector<GridTrace> traces(const Config& config, const std::vector<GridShape>& grids,
                              int steps) {
  std::vector<GridTrace> all;
  RoutingRecord choices;  // of the reference, which all grids repeat
  bool has_reference = false;
  const auto runs = [&](Communicator& world) {
    std::vector<PreparedRun> each;
    Config one = config;
    const DeviceChoice choice = choose_device(config, world);
    if (!choice.remark.empty() && world.rank() == 0) std::cerr << "note: " << choice.remark << '\n';
    one.parallelism.device = choice.device;
    for (const GridShape& grid : grids) each.push_back(run_on(one, grid));
    if (!is_gpu(one.parallelism.device)) return each;
    one.parallelism.device = DeviceKind::cpu;
    one.parallelism.transport = TransportKind::automatic;
    one.training.attention = CudaAttention::automatic;
    one.training.cuda_graph = false;
    each.insert(each.begin(), run_on(one, grids.front()));
    return each;
  };
  const auto trace = [&](const PreparedRun& here, Communicator& world) {
    const bool first = !has_reference;
    GridTrace mine = trace_run(agree_on(here, world), world, nullptr,
                               {.steps = steps,
                                .record = first ? &choices : nullptr,
                                .replay = first ? nullptr : &choices,
                                .progress = progress_of(config)});
    if (world.rank() == 0) all.push_back(std::move(mine));
  };
  const auto trace_on_threads = [&](const PreparedRun& here) {
    const ParallelismConfig& p = here->parallelism;
    run_ranks(p.grid().ranks(), [&](Communicator& world) { trace(here, world); },
              {.timeout_seconds = p.timeout_seconds});
  };
  if (!launches_mpi(config.parallelism)) {
    for (const PreparedRun& here : runs(*make_self())) {
      trace_on_threads(here);
      has_reference = true;
    }
    return all;
  }
  launch(config.parallelism, [&](Communicator& world) {
    for (const PreparedRun& here : runs(world)) {
      if (here->parallelism.grid().ranks() == world.size())
        trace(here, world);
      else if (world.rank() == 0)
        trace_on_threads(here);
      if (!has_reference) choices.share(world);
      has_reference = true;
    }
    world.barrier("check");
  });
  return all;
}

/// The coordinate check of muP. Returns the exit code.
int check_widths(const Config& config, const std::vector<std::int64_t>& widths, int steps) {
  if (widths.size() < 2) refuse("--widths needs at least two widths, such as 64,128,256");
  const std::vector<LayerChange> layers = coordinate_check(config, widths, steps);
  const bool passes = std::ranges::all_of(
      layers, [](const LayerChange& one) { return std::abs(one.slope) <= kMostSlope; });
  std::cout << coordinate_table(layers, widths)
            << (passes
                    ? "\nno layer's change depends on the width\n"
                    : "\nchanges DEPEND on the width: its learning rate will not suit another\n");
  return passes ? 0 : kFailed;
}

}  // namespace

int run_check(const Arguments& arguments) {
  CLI::App app("Runs the same training on several grids, or devices, and compares.", "axonn check");
  app.footer(kCheckExamples);
  std::string grids_text = "1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1 1,1,1,2 2,2,2,1";
  int steps = 10;
  app.add_option("--grids", grids_text, "grids x,y,z,data, separated by spaces")
      ->capture_default_str();
  app.add_option("--steps", steps, "steps on each grid")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  bool mup = false;
  std::vector<std::int64_t> widths;
  auto* check_mup = app.add_flag("--mup", mup,
                                 "instead of grids, compare widths: by how much the outputs of "
                                 "each layer change in the first steps; on one rank of the CPU");
  app.add_option("--widths", widths,
                 "widths for --mup; default: 1, 2 and 4 times model.mup_base, or model.hidden")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->needs(check_mup);
  std::string isa;
  app.add_option("--isa", isa,
                 "limit the instructions that the CPU computes with, as on an older processor")
      ->check(CLI::IsMember(cpu::instruction_sets()));
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  if (!isa.empty()) cpu::limit_instructions(isa);
  if (mup) {
    const Config config = with_stored_model(loaded->config, loaded->origins);
    const std::int64_t base =
        config.model.mup_base > 0 ? config.model.mup_base : config.model.hidden;
    if (widths.empty()) widths = {base, 2 * base, 4 * base};
    return check_widths(config, widths, steps);
  }
  const std::vector<GridShape> grids = parse_grids(grids_text);
  if (grids.size() < 2)
    refuse("--grids needs at least two grids, such as \"1,1,1,1 2,2,1,1\"; got '", grids_text, "'");
  const Config config = with_stored_model(loaded->config, loaded->origins);
  warn_about_files(config);
  const std::vector<GridTrace> all = traces(config, grids, steps);
  if (all.empty()) return 0;

  const DType dtype = loaded->config.training.dtype;
  const Tolerance tolerance = all.front().device == all.back().device
                                  ? tolerance_of(dtype)
                                  : tolerance_between_devices(dtype);
  std::vector<GridComparison> comparisons;
  bool agree = true;
  for (const GridTrace& trace : all) {
    comparisons.push_back(compare(all.front(), trace, tolerance));
    agree = agree && comparisons.back().agrees;
  }
  if (!isa.empty()) std::cout << cpu::instructions_in_use() << '\n';
  std::cout << "reference " << to_string(grids.front()) << " on " << all.front().device << ", "
            << steps << " steps: loss " << all.front().losses.front() << " to "
            << all.front().losses.back() << "\n\n"
            << comparison_table(comparisons, tolerance)
            << (agree ? "\nall grids agree\n" : "\nthe grids do NOT agree\n");
  return agree ? 0 : kFailed;
}

}  // namespace axonn
