#include "axonn/plan/probe.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/base/check.h"
#include "axonn/base/machine.h"
#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/cli/launch.h"
#include "axonn/io/files.h"
#include "axonn/train/own_cores.h"

namespace axonn {

namespace {

constexpr const char* kProbeExamples =
    R"(Products over shapes and types, attention, every row-wise operation of a step, memory, and
each collective over sizes for every group shape that grids of these ranks have: all ranks at once,
as in a run. About a minute and a half, or some seconds with --quick, whose figures are rougher.

Under mpirun or srun the ranks are the launcher's; else they are threads of this process, which
share its memory and say nothing of a network.

Examples:
  axonn probe --ranks 4 --output here.toml
  mpirun -np 8 axonn probe --output cluster.toml
  axonn plan configs/gpt2-124m.toml --machine here.toml --devices 4)";

struct ProbeFlags {
  int ranks = 0, threads = 0;
  std::string output = "machine.toml";
  ProbeOptions probe;
};

void add_probe_flags(CLI::App& app, ProbeFlags& flags) {
  app.add_option("--ranks", flags.ranks,
                 "ranks, as threads of this process; without it one for each core, two at least")
      ->check(CLI::Range(2, 4096));
  app.add_option("--threads", flags.threads,
                 "compute threads of a rank; without it cores over the ranks that share them")
      ->check(CLI::Range(1, 4096));
  app.add_option("--devices-per-node", flags.probe.devices_per_node,
                 "ranks that share a node; without it those that name the same host")
      ->check(CLI::PositiveNumber);
  app.add_option("--output", flags.output, "the machine file")
      ->type_name("FILE.toml")
      ->capture_default_str();
  app.add_option("--name", flags.probe.name, "of the machine")->capture_default_str();
  app.add_flag("--quick", flags.probe.quick, "fewer and smaller sizes");
}

}  // namespace

int run_probe(const Arguments& arguments) {
  CLI::App app("Measures this machine, for axonn plan.", "axonn probe");
  app.footer(kProbeExamples);
  ProbeFlags flags;
  add_probe_flags(app, flags);
  if (!parse_flags(app, arguments)) return 0;
  const int cores = static_cast<int>(usable_cores().size());
  Config config;
  config.training.threads = flags.threads;
  config.parallelism.data = flags.ranks > 0 ? flags.ranks : std::max(cores, 2);
  if (launches_mpi(config) && flags.ranks > 0)
    refuse("--ranks ", flags.ranks, ": the launcher says how many ranks there are");
  flags.probe.report = [](const std::string& line) { std::cout << line << std::endl; };
  launch(config, [&](Communicator& world) {
    ProbeOptions options = flags.probe;
    const OwnCores own(config, world);
    options.threads = own.threads();
    const Machine machine = probe(world, options);
    if (world.rank() != 0) return;
    write_file_atomically(flags.output, to_toml(machine));
    std::cout << "written to " << flags.output << '\n';
  });
  return 0;
}

}  // namespace axonn
