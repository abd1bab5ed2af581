#include "axonn/run/train/tune.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

constexpr const char* kTuneExamples =
    R"(Times every matrix product of a step (forward, input gradient and weight gradient) in each
way that the device offers, and replaces the default only if another is clearly faster. Keeps the
choices in training.tune_cache by device, threads, library, type and shape. A run with
training.tune = true uses the cached choices and times products that have none.

Examples:
  axonn tune configs/gpt2-124m.toml
  axonn tune configs/gpt2-124m.toml --training.dtype f32 --json f32.json
  axonn tune configs/gpt2-124m.toml --parallelism.x 2
  axonn train configs/gpt2-124m.toml --training.tune)";

}  // namespace

int run_tune(const Arguments& arguments) {
  CLI::App app("Times the ways to compute a step's matrix products and keeps the fastest.",
               "axonn tune");
  app.footer(kTuneExamples);
  std::string json;
  app.add_option("--json", json, "also write the choices to this file")->type_name("FILE");
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  const PreparedRun run = prepare_run(loaded->config, loaded->origins);
  const Config& config = run.config();
  warn_about_files(config);
  const NamedPaths inputs = inputs_of(config);
  claim_result({"--json", json}, inputs, kBeginsJson);
  claim_result({"training.tune_cache", config.training.tune_cache}, inputs, kBeginsJson);
  const std::string cache = matmul_cache_path(config.training.tune_cache);
  start_run(run, [&](const PreparedRun& agreed, Communicator& world) {
    const ProgressTarget progress = progress_of(agreed.config());
    Training training(agreed, world, nullptr, {.progress = progress});
    training.model.initialise();
    const MatmulChoices choices =
        tune(training, {.cache = cache,
                        .again = true,
                        .report = [](const std::string& line) { std::cerr << line << '\n'; },
                        .progress = progress});
    if (world.rank() != 0) return;
    std::cout << to_text(choices);
    if (!cache.empty()) std::cout << "kept in " << cache << '\n';
    if (!json.empty()) write_file_atomically(json, to_json(choices));
  });
  return 0;
}

}  // namespace axonn
