#include <iostream>

#include <CLI/CLI.hpp>

#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/cli/launch.h"
#include "axonn/io/files.h"
#include "axonn/train/benchmark.h"
#include "axonn/train/overlap_benchmark.h"
#include "axonn/train/stored_model.h"

namespace axonn {

namespace {

constexpr const char* kExamples =
    R"(Ten iterations, the mean of the last eight. The product peak is the best of a fixed list of
products, timed between the iterations. Flops are given by three conventions, each named.

Examples:
  axonn bench configs/gpt2-124m.toml
  axonn bench configs/gpt2-124m.toml --training.dtype f32 --json f32.json
  axonn bench configs/gpt2-124m.toml --parallelism.x 2
  axonn bench configs/gpt2-124m.toml --parallelism.z 2 --overlap)";

}  // namespace

int run_bench(const Arguments& arguments) {
  CLI::App app("Times training steps.", "axonn bench");
  app.footer(kExamples);
  std::string json;
  app.add_option("--json", json, "writes the figures to this file too")->type_name("FILE");
  bool overlap = false;
  app.add_flag("--overlap", overlap,
               "instead: what overlap hides, phase by phase, beside the same steps without it");
  const auto loaded = read_config(app, arguments);
  if (!loaded) return 0;
  validate(loaded->config);
  const Config config = resolved(with_stored_model(loaded->config));
  const auto show = [&](Communicator& world, const auto& report) {
    if (world.rank() != 0) return;
    std::cout << to_text(report);
    if (!json.empty()) write_file_atomically(json, to_json(report));
  };
  launch(config, [&](Communicator& world) {
    if (overlap)
      show(world, overlap_benchmark(config, world));
    else
      show(world, benchmark(config, world));
  });
  return 0;
}

}  // namespace axonn
