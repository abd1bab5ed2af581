#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/counts.h"
#include "axonn/plan/measure/benchmark.h"
#include "axonn/plan/measure/profile.h"
#include "axonn/plan/measure/scaling.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

constexpr const char* kBenchExamples =
    R"(Runs ten steps and reports the mean of the last eight. The steps run in two series of five
without a pause, as in training. The product peak is the best of a fixed list of matrix products,
timed before, between and after the series; in bf16 on a CPU they are timed in f32 too, and the
faster counts. Flops are given by three named conventions. Memory is the peak of the rank's arena,
beside the prediction of a dry run.

--scaling measures several grids, one after another; --svg draws tokens/s over ranks. weak: the
batch grows with the ranks, and the config sets the batch of the first grid. strong: the batch is
the same for all grids. Efficiency is tokens/s per core relative to the first grid. Ranks that are
threads of one process share its cores. Under mpirun each grid runs on the first ranks of those
started; larger grids are left out.

Examples:
  axonn bench configs/gpt2-124m.toml
  axonn bench configs/gpt2-124m.toml --training.dtype f32 --json f32.json
  axonn bench configs/gpt2-124m.toml --parallelism.x 2
  axonn bench configs/tiny.toml --scaling strong --grids "1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1"
  axonn bench configs/tiny.toml --scaling weak --ranks 1,2,4 --grow z --svg weak.svg
  axonn bench configs/gpt2-124m.toml --parallelism.z 2 --overlap
  axonn bench configs/gpt2-124m.toml --profile --json profile.json)";

struct BenchFlags {
  std::string json, svg, scaling, grids, grow = "data";
  std::vector<int> ranks;
  bool overlap = false, profile = false;
};

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  app.add_option("--json", flags.json, "also write the results to this file")->type_name("FILE");
  auto* scaling =
      app.add_option("--scaling", flags.scaling, "measure several grids, one after another")
          ->check(CLI::IsMember(kScalingKinds));
  auto* grids = app.add_option("--grids", flags.grids, "grids x,y,z,data, separated by spaces");
  auto* ranks = app.add_option("--ranks", flags.ranks,
                               "numbers of ranks: the config's grid, extended along one axis");
  ranks->delimiter(',')->excludes(grids);
  app.add_option("--grow", flags.grow, "the axis that --ranks extends")
      ->check(CLI::IsMember({"x", "y", "z", "data"}))
      ->capture_default_str()
      ->needs(ranks);
  auto* svg = app.add_option("--svg", flags.svg, "draw the scaling curve to this file");
  svg->type_name("FILE");
  for (CLI::Option* option : {grids, ranks, svg}) option->needs(scaling);
  app.add_flag("--overlap", flags.overlap,
               "instead: compare each phase of a step with and without overlap");
  app.add_flag("--profile", flags.profile,
               "instead: time every operation of a step, by shape, beside what bounds it");
}

/// Throws UsageError if the flags ask for several measurements. Three options that exclude each
/// other would be listed in the help by their addresses.
void check_one_measurement(const BenchFlags& flags) {
  if (!flags.scaling.empty() + flags.overlap + flags.profile > 1)
    refuse("--scaling, --overlap and --profile are three measurements; give one of them");
}

void measure(const PreparedRun& run, const BenchFlags& flags) {
  start_run(run, [&](const PreparedRun& agreed, Communicator& world) {
    const auto show = [&](const auto& report) {
      if (world.rank() != 0) return;
      std::cout << to_text(report);
      if (!flags.json.empty()) write_file_atomically(flags.json, to_json(report));
    };
    if (flags.profile)
      show(profile_steps(agreed, world, progress_of(agreed.config())));
    else if (flags.overlap)
      show(overlap_benchmark(agreed, world, progress_of(agreed.config())));
    else
      show(benchmark(agreed, world, progress_of(agreed.config())));
  });
}

/// Benchmarks each run under a launcher, on the first of its ranks. The other ranks wait.
void measure_under_launcher(const std::vector<PreparedRun>& runs,
                            const std::function<void(const BenchReport&)>& each) {
  launch(runs.front()->parallelism, [&](Communicator& world) {
    std::vector<PreparedRun> fit;
    std::vector<std::string> too_large;
    for (const PreparedRun& run : runs) {
      const GridShape grid = run->parallelism.grid();
      if (grid.ranks() <= world.size())
        fit.push_back(run);
      else
        too_large.push_back(concat(to_string(grid), " of ", grid.ranks(), " ranks"));
    }
    if (fit.empty())
      refuse("the launcher started ", world.size(),
             " ranks, too few for any grid: ", join(too_large),
             "; start more ranks, or give smaller grids");
    if (!too_large.empty() && world.rank() == 0)
      std::cerr << "warning: the launcher started " << world.size()
                << " ranks; left out: " << join(too_large) << '\n';
    for (const PreparedRun& run : fit) {
      const bool works = world.rank() < run->parallelism.grid().ranks();
      const auto group = world.split(works ? 0 : 1, "bench");
      if (works) {
        const BenchReport report =
            benchmark(agree_on(run, *group), *group, progress_of(run.config()));
        if (world.rank() == 0) each(report);
      }
      world.barrier("bench: the next grid");
    }
  });
}

void measure_scaling(const Config& base, const BenchFlags& flags) {
  const auto kind = value_of<ScalingKind>(flags.scaling, kScalingKinds);
  const Axis grows = *std::ranges::find(kAxes, flags.grow, [](Axis axis) { return name_of(axis); });
  const std::vector<GridShape> grids =
      flags.ranks.empty() ? parse_grids(flags.grids)
                          : grids_of_ranks(base.parallelism.grid(), flags.ranks, grows);
  std::vector<PreparedRun> runs = scaling_runs(base, grids, kind);
  for (PreparedRun& run : runs) run = within_budget(run);
  const bool mpi = launches_mpi(base.parallelism);
  const int cores = mpi ? 0 : usable_core_count();

  std::vector<BenchReport> reports;
  const auto each = [&](const BenchReport& report) {
    if (reports.empty()) std::cout << scaling_header();
    reports.push_back(report);
    std::cout << scaling_row(scaling_points(reports, cores).back()) << std::flush;
  };
  if (mpi) measure_under_launcher(runs, each);
  for (std::size_t i = 0; i < runs.size() && !mpi; ++i)
    start_run(runs[i], [&](const PreparedRun& agreed, Communicator& world) {
      const BenchReport report = benchmark(agreed, world, progress_of(base));
      if (world.rank() == 0) each(report);
    });
  if (reports.empty()) return;  // not the rank that reports
  const std::vector<ScalingPoint> points = scaling_points(reports, cores);
  if (!mpi) std::cout << "ranks are threads of one process, on " << cores << " cores in total\n";
  const Config& first = runs.front().config();
  const std::string title = fmt::format("{}, {}, sequences of {}", parameters_text(first.model),
                                        name_of(first.training.dtype), first.training.seq_len);
  if (!flags.svg.empty()) {
    write_file_atomically(flags.svg, scaling_svg(kind, title, points));
    std::cout << "curve: " << flags.svg << '\n';
  }
  if (!flags.json.empty()) write_file_atomically(flags.json, scaling_json(kind, points));
}

}  // namespace

int run_bench(const Arguments& arguments) {
  CLI::App app("Times training steps.", "axonn bench");
  app.footer(kBenchExamples);
  BenchFlags flags;
  add_bench_flags(app, flags);
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  check_one_measurement(flags);
  const NamedPaths inputs = inputs_of(loaded->config);
  claim_result({"--json", flags.json}, inputs, kBeginsJson);
  claim_result({"--svg", flags.svg}, inputs, kBeginsMarkup);
  claim_result({"training.tune_cache", loaded->config.training.tune_cache}, inputs, kBeginsJson);
  if (!flags.scaling.empty()) {
    measure_scaling(with_stored_model(loaded->config, loaded->origins), flags);
    return 0;
  }
  const PreparedRun run = prepare_run(loaded->config, loaded->origins);
  warn_about_files(run.config());
  measure(run, flags);
  return 0;
}

}  // namespace axonn
