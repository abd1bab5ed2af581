#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/train/nonfinite.h"

namespace axonn {

namespace {

constexpr const char* kReplayExamples =
    R"(A training whose loss or gradient norm becomes NaN or infinite saves the step: the weights
before it, its samples and their tokens (batch.json). This repeats it on the same grid, and names
the layer, the operation, the rank and the samples where the first such value arises. Nothing is
written.

Examples:
  axonn replay out/nonfinite-step-120
  axonn replay out/nonfinite-step-120 --grid 1,1,1,1 --dtype f32
      on one rank, and with more precision
  axonn replay out/nonfinite-step-120 --device cpu
      on the CPU, after a run on GPUs

Exit codes: 0 the step is finite, 1 it is not, 2 usage error.)";

}  // namespace

int run_replay(const Arguments& arguments) {
  CLI::App app("Repeats a training step whose loss was NaN or infinite.", "axonn replay");
  app.footer(kReplayExamples);
  std::string folder, grid, dtype;
  app.add_option("DIR", folder, "the folder nonfinite-step-N of the run")->required();
  app.add_option("--grid", grid, "x,y,z,data; default: the grid of the run");
  app.add_option("--dtype", dtype, "compute type; default: that of the run")
      ->check(CLI::IsMember(compute_type_names()));
  DeviceKind device = DeviceKind::automatic;
  const CLI::Option* chosen = add_device_flag(app, device);
  if (!parse_flags(app, arguments)) return 0;
  Config config = config_of_step(folder);
  if (!grid.empty()) {
    config.parallelism.set_grid(parse_grid(grid));
    config.training.micro_batch = 0;
  }
  if (!dtype.empty()) config.training.dtype = compute_type(dtype);
  if (chosen->count() > 0) config.parallelism.device = device;
  const PreparedRun run = prepared(std::move(config));
  warn_about_files(run.config());
  bool finite = true;
  start_run(run, [&](const PreparedRun& agreed, Communicator& world) {
    const auto [step, result, origin, tuned] =
        replay(agreed, folder, world, progress_of(agreed.config()));
    if (world.rank() != 0) return;
    finite = result.finite;
    std::cout << fmt::format("step {}: loss {}, gradient norm {}\n", step, result.loss,
                             result.grad_norm);
    if (tuned > 0) std::cout << fmt::format("{} products as the run had tuned them\n", tuned);
    if (!finite)
      std::cout << (origin.empty()
                        ? "finite when it was repeated: a fault of the hardware is likely"
                        : "NaN or infinity arises first " + origin)
                << '\n';
  });
  return finite ? 0 : kFailed;
}

}  // namespace axonn
