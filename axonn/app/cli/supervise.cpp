#include <cstdlib>
#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/stop_signals.h"
#include "axonn/app/supervise/nodes.h"
#include "axonn/app/supervise/supervisor.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr const char* kSupervisorExamples =
    R"(Starts COMMAND, and after each failure again, at once, until the run is done, stopped by
a signal, or refused (exit code 2). COMMAND must resume by itself (--checkpoint.resume auto). With
--nodes it chooses the nodes of each start: those that fail the probe after a failure, or that the
run's own error names twice, are left out, and spare ones take their places.

In a word of COMMAND, {nodes} stands for the names of a start's nodes with commas, {count} for their
number, {start} for the number of the start.

Examples:
  axonn supervise -- mpirun -n 8 axonn train llama.toml --output.dir out/llama \
      --checkpoint.resume auto
      starts it again after a crash
  axonn supervise --nodes "$SLURM_JOB_NODELIST" --spares 2 --run out/llama -- \
      srun --nodelist {nodes} --nodes {count} axonn train llama.toml --checkpoint.resume auto
      in a job with two nodes more than the run needs

Exit codes: that of the last start.)";

/// The run's folder as the command names it; "" if it does not.
std::string folder_in(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--output.dir";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kFlag && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(std::string(kFlag) + "=")) return words[i].substr(kFlag.size() + 1);
  }
  return "";
}

/// Inside a job of Slurm, a step on the node beside the run's own.
std::string usual_probe() {
  if (std::getenv("SLURM_JOB_ID") == nullptr) return "";
  return "srun --nodes 1 --ntasks 1 --nodelist {node} --overlap --quiet true";
}

}  // namespace

int run_supervise(const Arguments& arguments) {
  CLI::App app("Starts a job again after each failure, without the nodes at fault.",
               "axonn supervise");
  app.footer(kSupervisorExamples);
  SupervisorOptions options;
  std::string nodes;
  app.add_option("--nodes", nodes,
                 "the nodes of the allocation: a,b or nid[001-016]; default: the command has its "
                 "own");
  app.add_option("--spares", options.spares, "so many of them wait for others to fail");
  app.add_option(
      "--least", options.least,
      "a start may have so few nodes, once more have failed than there are spares; the "
      "command then needs parallelism.grid = auto (default: as many as the first start)");
  app.add_option("--probe", options.probe,
                 "a shell's command with {node} that fails on a node that cannot take part; "
                 "default: within Slurm a step there")
      ->type_name("COMMAND");
  app.add_option("--probe-seconds", options.probe_seconds, "after which a probe has failed");
  app.add_option("--run", options.run,
                 "the run's output.dir, whose steps show whether a start came further (default: "
                 "the command's --output.dir)")
      ->type_name("DIR");
  app.add_option("--failures", options.failures,
                 "so many starts in a row that come to no new step end it");
  app.add_option("--hang", options.hang,
                 "a start without a new step for so many seconds is ended, as a failure; longer "
                 "than a start, a validation and a checkpoint take (default: never)");
  app.add_option("--log", options.log, "gets a line of JSON for each start")->type_name("FILE");
  const auto border = std::ranges::find(arguments, "--");
  if (border != arguments.end()) options.command.assign(border + 1, arguments.end());
  if (!parse_flags(app, Arguments(arguments.begin(), border))) return 0;
  options.nodes = expand_nodes(nodes);
  if (options.probe.empty() && !options.nodes.empty()) options.probe = usual_probe();
  if (options.run.empty()) options.run = folder_in(options.command);
  if (options.run.empty() && !options.command.empty())
    refuse(
        "--run: the command does not say --output.dir, so that nobody knows whether a start "
        "comes further than the one before; name the run's folder");
  return supervise(options, catch_stop_signals(), [](const std::string& line) {
    std::cerr << "axonn supervise: " << line << std::endl;
  });
}

}  // namespace axonn
