#include "axonn/app/cli/train.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/app/cli/stop_signals.h"
#include "axonn/app/start/start_run.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/network/model/known_models.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/memory_fit.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/train/trainer.h"
#include "axonn/use/infer/text_sampler.h"
#include "axonn/use/rewards/rollout_sampler.h"

namespace axonn {

namespace {

constexpr const char* kTrainExamples =
    R"(Any key of the file can be given as a flag, --section.key value. Flags override the file.
axonn help KEY explains a key, axonn help SECTION all keys of a section.

Examples:
  axonn train configs/tiny.toml
      a small model on generated text, in seconds
  axonn train configs/shakespeare-bytes.toml --data.text FILE.txt
      a text of your own
  axonn train configs/tiny.toml --parallelism.x 2 --parallelism.y 2
      the same training on four ranks, with the same losses
  axonn train configs/tiny.toml --parallelism.grid auto
      one rank per GPU or core, on the planner's best grid
  axonn train configs/tiny.toml --training.steps 20 --print-config
      shows every value and its origin, without training
  axonn train configs/gpt2-124m.toml --dry-run --parallelism.x 4 --rank 3
      checks memory, disk and data of rank 3, without training

Exit codes: 0 done, 1 failed, 2 usage error, 75 stopped by a signal with a checkpoint saved.)";

/// The memory that a dry run compares with: `fit` bytes of a device if there is such a limit, else
/// that of the machine which parallelism.machine names, or this one's.
MemoryLimits limits_of(const Config& config, std::int64_t fit) {
  const std::string& name = config.parallelism.machine;
  if (fit > 0) {
    MemoryLimits limits = limits_here(config);
    limits.device = concat("--fit, for ", limits.device);
    limits.device_bytes = fit;
    limits.free_bytes = 0;
    limits.counts_data = false;
    return limits;
  }
  if (name.empty()) return limits_here(config);
  const Machine machine = read_machine(name);
  return {.device = "a device of " + machine.name,
          .device_bytes = static_cast<std::int64_t>(machine.usable_bytes()),
          .one = false,
          .node_bytes_per_s = machine.node_bytes_per_s / machine.devices_per_node};
}

/// prepare_run(). If a dry run lacks the model's files, says how to do it without them.
PreparedRun prepared_of(const LoadedConfig& loaded, bool dry) {
  try {
    return prepare_run(loaded.config, loaded.origins);
  } catch (const UsageError& error) {
    const std::string path = loaded.config.model.path;
    if (!dry || path.empty() || path_exists(path)) throw;
    const std::string name = lower_ascii(std::filesystem::path(path).filename().string());
    const auto names = model_names();
    const bool known = std::ranges::find(names, name) != names.end();
    refuse(error.what(), ". For the memory without the files: --model.path \"\" --model.name ",
           known ? name : "NAME", " --data.synthetic 1MB --data.tokenizer bytes",
           known ? "" : " (axonn help model.name lists names)");
  }
}

/// The settings of --fit that a config leaves open.
OpenSettings open_settings(const Origins& origins) {
  const auto open = [&](const char* key) { return !origins.is_set(key); };
  return {.micro_batch = open("training.micro_batch"),
          .recomputation =
              open("activation_checkpoint.mode") && open("activation_checkpoint.values") &&
              open("activation_checkpoint.first_values") && open("activation_checkpoint.budget"),
          .moments = open("optimizer.moments"),
          .quantize = open("model.quantize"),
          .offload =
              open("offload.parameters") && open("offload.gradients") && open("offload.optimizer")};
}

/// What stands in the way of settings that need less memory.
std::string closed_settings(const OpenSettings& open) {
  std::vector<std::string> keys;
  if (!open.micro_batch) keys.push_back("training.micro_batch");
  if (!open.recomputation) keys.push_back("[activation_checkpoint]");
  if (!open.moments) keys.push_back("optimizer.moments");
  if (!open.quantize) keys.push_back("model.quantize");
  return keys.empty() ? "" : concat("leave ", join(keys), " open, which the config sets, ");
}

/// The flag that gives a disk to a run without one, and the memory that it then takes; empty if it
/// does not fit then, either.
std::string with_disk(const PreparedRun& run, const ArenaBudget& limit, OpenSettings open) {
  if (!run->offload.dir.empty() || is_gpu(run->parallelism.device)) return "";
  open.offload = true;
  const auto found =
      fit_memory(run.with([](Config& config) { config.offload.dir = "."; }), limit, open);
  if (!found) return "";
  return concat("--offload.dir DIR, a folder on a disk of this node (then it would be ",
                format_bytes(found->peak_bytes), ")");
}

/// with_disk() without other values, if the found settings change values.
std::string instead_of(const FittedSettings& found, const PreparedRun& run,
                       const ArenaBudget& limit, OpenSettings open) {
  if (found.moments == run->optimizer.moments && found.quantize == run->model.quantize) return "";
  open.moments = open.quantize = false;
  const std::string disk = with_disk(run, limit, open);
  return disk.empty() ? "" : "; no value would change with " + disk;
}

/// The config with the settings that make its run fit into `bytes` of a device, as if the user had
/// set them, and on standard error what they are and why. Throws UsageError if none do.
LoadedConfig fitting_config(const LoadedConfig& loaded, std::int64_t bytes) {
  if (loaded.config.parallelism.automatic())
    refuse("--fit needs a grid: grid = \"auto\" and axonn plan choose one that fits by themselves");
  const PreparedRun run = prepared(with_stored_model(loaded.config, loaded.origins));
  const OpenSettings open = open_settings(loaded.origins);
  const PreparedRun in_memory = run.with([&](Config& config) {
    if (open.offload) config.offload.dir.clear();
  });
  const auto limit = [&](const PreparedRun& one) {
    return arena_limit(one, limits_of(one.config(), bytes));
  };
  const std::int64_t before = peak_of_run(in_memory);
  const auto found = fit_memory(run, limit, open);
  if (!found) {
    const std::string disk = with_disk(run, limit, open);
    refuse("--fit ", format_bytes(bytes), ": a rank's memory for a step is ", format_bytes(before),
           ", and no recomputation, micro-batch, moments or quantization makes it fit; ",
           closed_settings(open), disk.empty() ? "" : concat("set ", disk, ", "),
           "take a smaller training.seq_len, or more ranks of more machines");
  }
  LoadedConfig fitted = loaded;
  OptionList list;
  list_options(fitted.config, list);
  std::string flags;
  const auto set = [&](const char* section, const char* name, bool changes, auto apply) {
    if (!changes) return;
    apply();
    const Option& option = *list.find(section, name);
    fitted.origins.set(option.key(), "--fit");
    flags += concat(" --", option.key(), ' ', flag_value(option));
  };
  set("training", "micro_batch", found->micro_batch != run->training.micro_batch,
      [&] { fitted.config.training.micro_batch = found->micro_batch; });
  set("activation_checkpoint", "budget", found->budget > 0,
      [&] { fitted.config.activation_checkpoint.budget = found->budget; });
  set("optimizer", "moments", found->moments != run->optimizer.moments,
      [&] { fitted.config.optimizer.moments = found->moments; });
  set("model", "quantize", found->quantize != run->model.quantize,
      [&] { fitted.config.model.quantize = found->quantize; });
  for (const auto& [name, part] : {std::pair{"parameters", &OffloadConfig::parameters},
                                   {"gradients", &OffloadConfig::gradients},
                                   {"optimizer", &OffloadConfig::optimizer}})
    set("offload", name, found->offload.*part != run->offload.*part,
        [&] { fitted.config.offload.*part = found->offload.*part; });
  if (!speaks_for_all()) return fitted;
  const Machine machine = machine_of(run.config());
  std::cerr << (flags.empty()
                    ? fmt::format("--fit {}: a rank's memory for a step is {}, which fits\n",
                                  format_bytes(bytes), format_bytes(before))
                    : fmt::format("--fit {} sets{}: a rank's memory for a step is {}, not {}, and "
                                  "the step is simulated to take {:.2f} times as long{}\n",
                                  format_bytes(bytes), flags, format_bytes(found->peak_bytes),
                                  format_bytes(before),
                                  found->seconds / predict(in_memory, machine).time.step_s,
                                  instead_of(*found, run, limit, open)));
  return fitted;
}

}  // namespace

int train_dry(const PreparedRun& run, int rank, std::int64_t fit) {
  const Config& config = run.config();
  if (config.parallelism.automatic())
    refuse("[parallelism] grid = \"auto\" does not work with --dry-run, which chooses no grid; ",
           "set a grid, such as the first of axonn plan");
  const bool speaks = speaks_for_all();
  const DryRun found = dry_run(run, rank,
                               {.make_text_sampler = make_text_sampler,
                                .limits = limits_of(config, fit),
                                .progress = speaks ? progress_of(config) : ProgressTarget{}});
  if (speaks) std::cout << to_text(found, run);
  if (!found.fault.empty()) fail(Where::here(), found.fault);
  return 0;
}

void add_train_flags(CLI::App& app, TrainFlags& flags) {
  app.add_flag("--print-config", flags.print, "show every value and where it comes from, and stop");
  app.add_flag("--dry-run", flags.dry,
               "check everything without training: memory, disk, weights, data, the first sample");
  app.add_option("--rank", flags.rank, "rank whose memory --dry-run reports; no ranks are started")
      ->needs("--dry-run");
  app.add_option(
         "--fit", flags.fit,
         "memory of this machine, or of each GPU, such as 16GiB, that the ranks may take: "
         "chooses micro-batch and recomputation, then what is in the file of offload.dir, if "
         "that is set, then how moments or frozen weights are kept, among the settings that "
         "are not set")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->check(CLI::Validator(CLI::PositiveNumber).description(""))
      ->type_name("SIZE");
}

int run_train(const Arguments& arguments) {
  CLI::App app("Trains a model, on one rank or on a grid of ranks.", "axonn train");
  app.footer(kTrainExamples);
  TrainFlags flags;
  add_train_flags(app, flags);
  const auto loaded = read_config(app, arguments);
  return loaded ? run_training(*loaded, flags) : 0;
}

int run_training(const LoadedConfig& written, const TrainFlags& flags) {
  const LoadedConfig loaded = flags.fit > 0 ? fitting_config(written, flags.fit) : written;
  const auto note = [&] {
    if (!flags.note.empty() && speaks_for_all()) std::cerr << flags.note << '\n';
  };
  if (flags.print) {
    note();
    warn_about(loaded);
    if (speaks_for_all()) std::cout << print_config(loaded.config, loaded.origins);
    return 0;
  }
  const PreparedRun run = prepared_of(loaded, flags.dry);
  note();
  warn_about(loaded);
  warn_about_files(run.config());
  if (flags.dry) return train_dry(run, flags.rank, flags.fit);
  TrainOptions options{.origins = &loaded.origins,
                       .terminal = &std::cout,
                       // Under a launcher a rank may see a terminal even if the output is a file.
                       .interactive = stdout_is_interactive() && !launches_mpi(run->parallelism),
                       .columns = terminal_columns(),
                       .progress = progress_of(run.config()),
                       .make_text_sampler = make_text_sampler,
                       .make_sampler = make_rollout_sampler,
                       .stop = &catch_stop_signals()};
  std::atomic<bool> stopped = false;  // the same on all ranks
  const auto say = [](const std::string& line) { std::cerr << line << '\n'; };
  start_run_on_any_grid(run, say, options.progress,
                        [&](const PreparedRun& agreed, Communicator& world) {
                          if (world.rank() == 0)
                            refuse_too_large(agreed, limits_here(agreed.config()));
                          if (train(agreed, world, options) == TrainEnd::stopped) stopped = true;
                          for (const auto& [folder, resume] : flags.again) {
                            if (stopped) return;
                            const PreparedRun same = agreed.with([&](Config& config) {
                              config.output.dir = folder;
                              config.checkpoint.resume = resume;
                            });
                            if (train(same, world, options) == TrainEnd::stopped) stopped = true;
                          }
                        });
  return stopped ? kStoppedEarly : 0;
}

}  // namespace axonn
