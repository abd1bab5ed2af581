#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/records/export_run.h"
#include "axonn/run/records/run_list.h"

namespace axonn {

namespace {

constexpr const char* kExportExamples =
    R"(Examples:
  axonn export out --format csv --out out.csv
      a row a step, for a spreadsheet or pandas; --out /dev/stdout prints it
  axonn export sweep --format csv --out sweep.csv
      several runs, given one by one or by a folder that holds them: a table with a column "run"
  axonn export out --format tensorboard --out events/run-1
      then: tensorboard --logdir events)";

}  // namespace

int run_export(const Arguments& arguments) {
  std::vector<std::string> paths;
  std::string format, out;
  bool overwrite = false;
  CLI::App app("Writes the series of runs for other tools.", "axonn export");
  app.footer(kExportExamples);
  app.add_option("RUN", paths, "output.dir of a run, or a folder that holds runs")->required();
  app.add_option("--format", format, "csv or tensorboard")
      ->required()
      ->type_name("NAME")
      ->check(CLI::IsMember(std::vector<std::string>(kExportFormats.begin(), kExportFormats.end()))
                  .description(""));
  app.add_option("--out", out, "csv: the file; tensorboard: a folder")
      ->required()
      ->type_name("PATH");
  add_overwrite_flag(app, overwrite);
  if (!parse_flags(app, arguments)) return 0;
  const std::vector<std::string> runs = need_runs(paths);
  NamedPaths inputs;
  for (const std::string& run : runs)
    for (const char* file : {"metrics.jsonl", "config.toml", "samples.jsonl", "checkpoints"})
      inputs.push_back({"RUN", concat(run, '/', file)});
  if (format == "csv") claim_output({"--out", out}, inputs, overwrite);
  const std::int64_t steps = export_runs(runs, value_of<ExportFormat>(format, kExportFormats), out);
  if (!out.starts_with("/dev/"))
    std::cout << "wrote " << steps << " steps of "
              << (runs.size() == 1 ? runs.front() : concat(runs.size(), " runs")) << " to " << out
              << '\n';
  return 0;
}

}  // namespace axonn
