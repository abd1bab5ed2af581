#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/records/export_run.h"

namespace axonn {

namespace {

constexpr const char* kExportExamples =
    R"(Examples:
  axonn export out --format csv --out out.csv
      a row a step, for a spreadsheet or pandas; --out /dev/stdout prints it
  axonn export out --format tensorboard --out events/run-1
      then: tensorboard --logdir events)";

}  // namespace

int run_export(const Arguments& arguments) {
  std::string run, format, out;
  bool overwrite = false;
  CLI::App app("Writes the series of a run for other tools.", "axonn export");
  app.footer(kExportExamples);
  app.add_option("RUN", run, "output.dir of a run, which has metrics.jsonl")->required();
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
  NamedPaths inputs;
  for (const char* file : {"metrics.jsonl", "config.toml", "samples.jsonl", "checkpoints"})
    inputs.push_back({"RUN", concat(run, '/', file)});
  if (format == "csv") claim_output({"--out", out}, inputs, overwrite);
  const std::int64_t steps = export_run(run, value_of<ExportFormat>(format, kExportFormats), out);
  if (!out.starts_with("/dev/"))
    std::cout << "wrote " << steps << " steps of " << run << " to " << out << '\n';
  return 0;
}

}  // namespace axonn
