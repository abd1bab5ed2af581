#include "axonn/plan/planner/machine/probe.h"

#include <algorithm>
#include <atomic>
#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/planner/machine/network_probe.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

constexpr const char* kProbeExamples =
    R"(Measures matrix products of several shapes and types, attention, every row-wise operation of
a step, memory, and each collective at several sizes for every group shape of grids of these ranks.
All ranks measure at once, as in a run. Takes about a minute and a half, or some seconds with
--quick, which is less precise.

Under mpirun or srun the ranks are the launcher's. Otherwise they are threads of this process, which
share its memory, so nothing is learned about a network.

With --network it writes no machine file. In some seconds, on any number of nodes, it measures each
node's products, memory and links, and marks figures that are more than --tolerance percent below
the median of all nodes. The exit code is 1 if a node is marked.

Examples:
  axonn probe --ranks 4 --out here.toml
  srun axonn probe --network --device cuda --json nodes.json
      before a run: are all nodes as fast as the others?
  mpirun -np 8 axonn probe --out cluster.toml
  axonn probe --device cuda --out gpus.toml
      NVIDIA GPUs, a rank each, and NCCL between them
  axonn plan configs/gpt2-124m.toml --machine here.toml --devices 4)";

}  // namespace

namespace {

/// `axonn probe --network`; returns the exit code.
int probe_nodes(const Config& config, const ProbeOptions& asked, double tolerance,
                const std::string& json) {
  std::atomic<int> code = 0;
  launch(config.parallelism, [&](Communicator& world) {
    ProbeOptions options = asked;
    const OwnCores own(config, world);
    options.threads = own.threads();
    NetworkReport report = probe_network(world, options);
    if (world.rank() == 0) {
      mark_nodes(report, tolerance);
      std::cout << to_text(report);
      if (!json.empty()) write_file_atomically(json, to_json(report));
    }
    std::int64_t good = report.good() ? 1 : 0;
    world.broadcast(buffer(std::span(&good, 1)), 0, "probe").wait();
    if (good == 0) code = kFailed;
  });
  return code;
}

}  // namespace

int run_probe(const Arguments& arguments) {
  CLI::App app("Measures this machine, for axonn plan.", "axonn probe");
  app.footer(kProbeExamples);
  int ranks = 0;
  std::string output = "machine.toml", json;
  bool network = false, overwrite = false;
  double tolerance = 10;
  Config config;
  std::ostream terminal(std::cout.rdbuf());  // does not throw
  ProbeOptions asked{.device = DeviceKind::automatic,
                     .report = [&](const std::string& line) { terminal << line << std::endl; }};
  app.add_option("--ranks", ranks,
                 "ranks, as threads of this process; default: one per GPU or core, at least two")
      ->check(CLI::Range(2, 4096));
  app.add_option(
         "--threads", config.training.threads,
         "compute threads of a rank; default: the cores divided by the ranks that share them")
      ->check(CLI::Range(1, 4096));
  app.add_option("--devices-per-node", asked.devices_per_node,
                 "ranks that share a node; default: those with the same host name")
      ->check(CLI::PositiveNumber);
  add_device_flag(app, asked.device);
  app.add_option("--out", output, "the machine file to write")
      ->type_name("FILE.toml")
      ->capture_default_str();
  add_overwrite_flag(app, overwrite);
  app.add_option("--name", asked.name, "name of the machine")->capture_default_str();
  app.add_option("--disk", asked.disk,
                 "folder on a disk of each node, whose rate plans of runs with [offload] need")
      ->type_name("DIR");
  app.add_flag("--quick", asked.quick, "fewer and smaller sizes");
  auto* const nodes = app.add_flag("--network", network, "only compare the nodes");
  app.add_option("--tolerance", tolerance, "with --network: percent below the median")
      ->needs(nodes)
      ->check(number_from(0.1, 99))
      ->capture_default_str();
  app.add_option("--json", json, "with --network: also write the figures to this file")
      ->needs(nodes)
      ->type_name("FILE");
  if (!parse_flags(app, arguments)) return 0;
  claim_result({"--json", json}, {}, kBeginsJson);
  if (!network) claim_output({"--out", output}, {}, overwrite);
  validate_device(asked.device);
  const int gpus = static_cast<int>(gpus_for(asked.device).size());
  config.parallelism.data = ranks > 0 ? ranks : std::max(gpus > 0 ? gpus : usable_core_count(), 2);
  if (launches_mpi(config.parallelism) && ranks > 0)
    refuse("--ranks ", ranks, ": the launcher sets the number of ranks; leave out --ranks");
  if (network) return probe_nodes(config, asked, tolerance / 100, json);
  launch(config.parallelism, [&](Communicator& world) {
    ProbeOptions options = asked;
    const OwnCores own(config, world);
    options.threads = own.threads();
    options.progress = progress_of(config);
    const Machine machine = probe(world, options);
    if (world.rank() != 0) return;
    write_file_atomically(output, to_toml(machine));
    std::cout << "written to " << output << '\n';
  });
  return 0;
}

}  // namespace axonn
