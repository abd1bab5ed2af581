#include <algorithm>
#include <cmath>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/model_flags.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/options/options.h"
#include "axonn/plan/measure/benchmark.h"
#include "axonn/plan/planner/machine/link_rates.h"
#include "axonn/plan/planner/report.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

constexpr const char* kPlanExamples =
    R"(Simulates a training step on every grid of the devices, with the machine's costs; nothing is
run. For each grid it takes the micro-batch and the recomputation that are fastest among those that
fit into memory. Settings such as parallelism.chunks come from the file or from flags. An axis,
training.micro_batch or activation_checkpoint.mode given as a flag is fixed. A config's plan has the
config's own type, length and batch. Without a config: bf16, sequences of 2,048 tokens and steps of
4 Mi tokens; the output says what it assumed.

Flops follow the convention "model" unless another is named.

Examples:
  axonn plan configs/gpt2-124m.toml --machine dgx-h100 --devices 8
      the model and batch of a config
  axonn plan --model gpt-80b --machine frontier --devices 8192
             --batch-tokens 16Mi --seq-len 2048 --train-tokens 2T
      a model by name; with days and device hours of a whole training
  axonn plan configs/gpt2-124m.toml --machine frontier --devices 8 --strategy fsdp
      the best grid that uses z only
  axonn plan configs/gpt2-124m.toml --machine alps --devices 4,8,16,32 --scaling weak
      the best plan for each number of devices, as a table
  axonn plan configs/tiny.toml --machine mine.toml --devices 8 --json plan.json
      a machine file that axonn probe wrote
  axonn plan configs/tiny.toml --machine mine.toml --devices 2 --measure 3
      the best three plans, run here: predicted and measured times
  axonn plan --published
      steps that other trainers published, beside what this predicts for them)";

struct PlanFlags {
  std::string model, machine, tokens, batch_tokens, strategy = "4d", scaling = "strong",
                                                    cost = "simulated", json, svg;
  std::vector<int> devices;
  std::int64_t seq_len = 0;
  int top = 5, measure = 0;
};

void add_plan_flags(CLI::App& app, PlanFlags& flags) {
  app.add_option("--model", flags.model, "a model's name, a config.toml, or a folder of a model");
  app.add_option("--machine", flags.machine, "a machine's name or file")->required();
  app.add_option("--devices", flags.devices,
                 "number of devices; several, separated by commas, for scaling")
      ->delimiter(',');
  app.add_option("--batch-tokens", flags.batch_tokens,
                 "tokens per step, instead of training.global_batch")
      ->type_name("N|4Mi");
  app.add_option("--seq-len", flags.seq_len, "instead of training.seq_len")
      ->check(count_from(1))
      ->type_name("N");
  app.add_option("--strategy", flags.strategy,
                 "fsdp: z only; hsdp: z and data; megatron: x in a node, z and data; 4d: all axes")
      ->check(CLI::IsMember(kStrategies))
      ->capture_default_str();
  app.add_option(
         "--cost", flags.cost,
         "what plans are ranked by: a simulated step, or the AxoNN paper's communication model")
      ->check(CLI::IsMember(kCostModels))
      ->capture_default_str();
  app.add_option("--top", flags.top, "number of plans to show")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--measure", flags.measure,
                 "run a few steps of the best K plans here and compare with the prediction")
      ->check(CLI::Range(1, 1000))
      ->type_name("K");
  app.add_option("--train-tokens", flags.tokens,
                 "tokens of a whole training: shows days and device hours")
      ->type_name("N|15T");
  app.add_option("--scaling", flags.scaling,
                 "with several --devices: strong keeps the batch, weak grows it with the devices")
      ->check(CLI::IsMember(kScalingKinds))
      ->capture_default_str();
  app.add_option("--json", flags.json, "also write the plans to this file")->type_name("FILE");
  app.add_option("--svg", flags.svg, "draw the scaling over several --devices to this file")
      ->type_name("FILE");
}

/// Parses a count such as "1500", "4Mi" (4 · 2^20), "300B" (300 · 10^9) or "15T". Throws UsageError
/// for other text.
std::int64_t count_of(const std::string& flag, const std::string& text) {
  constexpr std::string_view kDecimal = "KMBT", kBinary = "KMGT";
  const bool binary = text.ends_with('i');
  std::string_view number = std::string_view(text).substr(0, text.size() - (binary ? 1 : 0));
  const std::string_view suffixes = binary ? kBinary : kDecimal;
  const auto suffix = number.empty() ? std::string_view::npos : suffixes.find(number.back());
  double factor = 1;
  if (suffix != std::string_view::npos) {
    factor = std::pow(binary ? 1024 : 1000, suffix + 1);
    number.remove_suffix(1);
  }
  const auto value = parse_real(std::string(number));
  constexpr double kMost = 1e18;
  const bool unit_missing = binary && factor == 1;
  if (unit_missing || !value || !(*value > 0) || *value * factor > kMost || *value * factor < 1)
    refuse("--", flag, " ", text,
           " is not a number of tokens; give one such as 4194304, 4Mi (4 times 2^20), 300B or 15T");
  return std::llround(*value * factor);
}

/// Replaces `--model X` by the flag that it stands for: --config, --model.path or --model.name.
Arguments with_model_flag(Arguments arguments) {
  constexpr std::string_view kFlag = "--model", kFlagIs = "--model=";
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (at->starts_with(kFlagIs)) {
      at = arguments.insert(at + 1, at->substr(kFlagIs.size())) - 1;
      *at = kFlag;
    }
    if (*at != kFlag || at + 1 == arguments.end()) continue;
    const std::string& model = at[1];
    *at++ = model.ends_with(".toml") ? "--config"
            : path_exists(model)     ? "--model.path"
                                     : "--model.name";
  }
  return arguments;
}

/// Refuses a batch of no whole number of sequences, and names batches that are.
[[noreturn]] void refuse_batch(const std::string& given, std::int64_t tokens, std::int64_t length) {
  const std::int64_t fewer = std::max(tokens / length, std::int64_t{1}) * length,
                     more = (tokens / length + 1) * length;
  std::string binary;
  if (!given.empty() && (given.back() == 'K' || given.back() == 'M'))
    if (const std::int64_t meant = count_of("batch-tokens", given + 'i'); meant % length == 0)
      binary = fmt::format("{}i ({}), ", given, format_count(meant));
  refuse("--batch-tokens ", given, " is ", format_count(tokens),
         " tokens, which is no whole number of sequences of ", format_count(length),
         " tokens; give ", binary, fewer, " or ", more);
}

/// Sets sequence length and batch from the flags. Where neither file nor flags set them: 2,048
/// tokens, or the model's positions if fewer, and 4 Mi tokens per step; notes that in `assumed`.
void set_batch(Config& config, const PlanFlags& flags, std::vector<std::string>& assumed) {
  constexpr std::int64_t kUsualLength = 2048, kUsualBatch = std::int64_t{4} << 20;
  std::int64_t &length = config.training.seq_len, &batch = config.training.global_batch;
  if (flags.seq_len > 0) length = flags.seq_len;
  if (length == 0) {
    const std::int64_t most = config.model.positions;
    length = most > 0 ? std::min(most, kUsualLength) : kUsualLength;
    assumed.push_back(fmt::format("sequences of {} tokens (--seq-len)", format_count(length)));
  }
  if (!flags.batch_tokens.empty()) {
    const std::int64_t tokens = count_of("batch-tokens", flags.batch_tokens);
    if (tokens % length != 0) refuse_batch(flags.batch_tokens, tokens, length);
    batch = tokens / length;
  } else if (batch == 0) {
    batch = std::max<std::int64_t>(kUsualBatch / length, 1);
    assumed.push_back(
        fmt::format("steps of {} tokens (--batch-tokens)", format_count(batch * length)));
  }
}

/// A config's type is that of its run; without a config it is bf16, which `assumed` notes.
void set_dtype(Config& config, const Origins& origins, std::vector<std::string>& assumed) {
  if (!config.file.empty() || origins.is_set("training.dtype")) return;
  config.training.dtype = DType::bf16;
  assumed.emplace_back("bf16 (--training.dtype)");
}

/// The run that plans are of, with placeholders for keys that do not matter to a plan.
PreparedRun complete(Config config) {
  const DataConfig& data = config.data;
  config.stage.clear();
  if (data.text.empty() && data.tokens.empty() && data.jsonl.empty() && data.synthetic == 0)
    config.data.synthetic = 1;
  if (config.data.tokenizer.empty() && config.model.vocab > 0) config.data.tokenizer = "bytes";
  config.training.steps = 1;
  config.training.epochs = 0;
  if (config.optimizer.lr <= 0) config.optimizer.lr = 1;
  config.lr_scheduler = {};
  config.training.batch_ramp.clear();  // plans are of the largest batch, global_batch
  config.training.batch_stages.clear();
  config.parallelism.set_grid({});
  config.parallelism.context = config.parallelism.experts = 1;
  config.parallelism.named_grid.clear();
  config.parallelism.device = DeviceKind::automatic;
  config.training.micro_batch = 0;
  return prepared(std::move(config));
}

std::string label_of(const LoadedConfig& loaded) {
  const ModelConfig& model = loaded.config.model;
  for (const std::string& label : {model.path, model.name, loaded.config.file})
    if (!label.empty()) return label;
  return std::string(model_families()[static_cast<int>(model.family)]);
}

SearchOptions options_of(const Config& config, const Origins& origins, const PlanFlags& flags) {
  SearchOptions options{.top = flags.top};
  if (speaks_for_all()) options.progress = progress_of(config);
  options.cost = value_of<CostModel>(flags.cost, kCostModels);
  options.strategy = value_of<Strategy>(flags.strategy, kStrategies);
  const auto kept = [&](const char* key, auto value, auto free) {
    return origins.from_flag(key) ? value : free;
  };
  options.micro_batch = kept("training.micro_batch", config.training.micro_batch, std::int64_t{0});
  const ParallelismConfig& p = config.parallelism;
  options.fixed = {kept("parallelism.x", p.x, 0),
                   kept("parallelism.y", p.y, 0),
                   kept("parallelism.z", p.z, 0),
                   kept("parallelism.data", p.data, 0),
                   kept("parallelism.context", p.context, 0),
                   kept("parallelism.experts", p.experts, 0)};
  if (origins.from_flag("activation_checkpoint.mode"))
    options.recompute = config.activation_checkpoint.mode;
  options.keep_weights = !origins.from_flag("parallelism.keep_weights");
  return options;
}

std::vector<int> devices_of(const PlanFlags& flags, const Config& config) {
  if (flags.devices.empty()) {
    if (config.parallelism.grid().ranks() == 1)
      refuse("the number of devices is unknown; give it with --devices");
    return {config.parallelism.grid().ranks()};
  }
  for (const int devices : flags.devices)
    if (devices < 1) refuse("--devices ", devices, ": give at least 1");
  return flags.devices;
}

std::vector<PlanReport> plans_for(const PlanReport& asked, const std::vector<int>& devices,
                                  ScalingKind kind) {
  std::vector<PlanReport> reports;
  for (const int count : devices) {
    PlanReport one = asked;
    one.options.devices = count;
    const std::int64_t batch = one.run->training.global_batch;
    if (kind == ScalingKind::weak) {
      if (batch * count % devices.front() != 0)
        refuse("weak scaling from ", devices.front(), " to ", count,
               " devices does not scale the batch of ", batch,
               " sequences to a whole number; use a batch that is a multiple of ", devices.front());
      one.run = one.run.with(
          [&](Config& config) { config.training.global_batch = batch * count / devices.front(); });
    }
    reports.push_back(make_plans(std::move(one)));
  }
  return reports;
}

void show(const std::vector<PlanReport>& reports, ScalingKind kind, const PlanFlags& flags) {
  const bool several = reports.size() > 1;
  std::cout << (several ? scaling_text(kind, reports) : to_text(reports.front()));
  if (!flags.json.empty())
    write_file_atomically(flags.json,
                          several ? scaling_json(kind, reports) : to_json(reports.front()));
  if (flags.svg.empty()) return;
  write_file_atomically(flags.svg, scaling_svg(kind, reports));
  std::cout << "curve: " << flags.svg << '\n';
}

std::string row(int place, const Plan& plan, const MeasuredSteps& measured) {
  return fmt::format("{:>2}  {:<16} {:>9.4f} {:>9.4f} {:>6.2f} {:>10.4f} {:>9.4f} {:>11} {:>11}\n",
                     place, with_factors(plan.grid), plan.time.step_s, measured.step_s,
                     plan.time.step_s / measured.step_s, plan.time.exposed_s(), measured.waited_s,
                     format_bytes(plan.memory_bytes), format_bytes(measured.memory_bytes));
}

/// Runs a few steps of each of the first `count` plans, one after another, and prints a line with
/// the predicted and the measured values. The links of the plans' machine choose collectives, as in
/// a run with parallelism.machine. Ranks are threads, or the launcher's processes.
/// Throws UsageError if the launcher did not start report.options.devices ranks.
void measure_plans(const PlanReport& report, int count) {
  constexpr MeasureOptions kMeasured{.steps = 5, .seconds = 10};
  const auto& plans = report.result.plans;
  if (plans.empty()) return;
  launch(planned(report.run, plans.front())->parallelism, [&](Communicator& world) {
    const bool speaks = world.rank() == 0;
    use_link_rates(world, report.run->parallelism, report.machine);
    if (speaks)
      std::cout << fmt::format("\n{:>2}  {:<16} {:>9} {:>9} {:>6} {:>10} {:>9} {:>11} {:>11}\n", "",
                               "x,y,z,data", "planned s", "measured", "ratio", "waits pl.",
                               "measured", "memory pl.", "measured");
    for (int i = 0; i < std::min(count, static_cast<int>(plans.size())); ++i) {
      const PreparedRun run = planned(report.run, plans[i]).with([](Config& config) {
        config.activation_checkpoint.budget = 0;  // the plan keeps it
      });
      const auto measured = measure_steps(run, world, kMeasured);
      if (speaks) std::cout << row(i + 1, plans[i], measured) << std::flush;
    }
    if (speaks)
      std::cout << "Measured: the median of at most " << kMeasured.steps
                << " steps on the slowest rank; waits: mean of the ranks; memory: largest.\n";
  });
}

}  // namespace

int run_plan(const Arguments& given) {
  if (std::ranges::any_of(given,
                          [](const std::string& one) { return one.starts_with("--published"); }))
    return run_published_plans(given);
  CLI::App app("Ranks the grids of a machine's devices for a model, without running the model.",
               "axonn plan");
  app.footer(kPlanExamples);
  PlanFlags flags;
  add_plan_flags(app, flags);
  const auto loaded = read_config(app, with_model_flag(given));
  if (!loaded) return 0;
  Config config = with_stored_model(loaded->config, loaded->origins);
  std::vector<std::string> assumed;
  set_dtype(config, loaded->origins, assumed);
  set_batch(config, flags, assumed);
  const std::vector<int> devices = devices_of(flags, config);
  PlanReport asked{.model = label_of(*loaded),
                   .run = complete(config),
                   .machine = read_machine(flags.machine),
                   .options = options_of(config, loaded->origins, flags),
                   .result = {},
                   .assumed = assumed};
  asked.run = asked.run.with([&](Config& run) { run.parallelism.device = asked.machine.backend; });
  keep_freed_memory();  // recordings of dry steps, thousands of times
  if (!flags.tokens.empty()) asked.tokens = count_of("tokens", flags.tokens);
  const auto kind = value_of<ScalingKind>(flags.scaling, kScalingKinds);
  if (devices.size() < 2 && !flags.svg.empty())
    refuse("--svg draws the scaling over several --devices; give more than one number");
  if (flags.measure > 0 && devices.size() > 1)
    refuse("--measure needs a single number of --devices");
  NamedPaths inputs = inputs_of(config);
  inputs.push_back({"--machine", flags.machine});
  claim_result({"--json", flags.json}, inputs, kBeginsJson);
  claim_result({"--svg", flags.svg}, inputs, kBeginsMarkup);
  asked.options.top = std::max(flags.top, flags.measure);
  const std::vector<PlanReport> reports = plans_for(asked, devices, kind);
  if (speaks_for_all()) show(reports, kind, flags);
  if (flags.measure > 0) measure_plans(reports.front(), flags.measure);
  return 0;
}

}  // namespace axonn
