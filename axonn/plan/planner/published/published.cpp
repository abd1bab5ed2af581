#include "axonn/plan/planner/published/published.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/known_models.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

/// The text of machines/published/steps.toml. Defined in machine_files.cpp, which CMake writes.
std::string_view published_steps_file();

namespace {

/// Sizes of a model that has no `known`; the first five are needed.
constexpr std::pair<std::string_view, std::int64_t ModelConfig::*> kSizes[] = {
    {"layers", &ModelConfig::layers},
    {"hidden", &ModelConfig::hidden},
    {"ffn", &ModelConfig::ffn},
    {"heads", &ModelConfig::heads},
    {"vocab", &ModelConfig::vocab},
    {"kv_heads", &ModelConfig::kv_heads},
    {"experts", &ModelConfig::experts},
    {"experts_per_token", &ModelConfig::experts_per_token},
    {"expert_ffn", &ModelConfig::expert_ffn}};
constexpr std::size_t kNeededSizes = 5;

void list_model(PublishedModel& model, OptionList& list) {
  list.section("model", "A model of published steps");
  ModelConfig& c = model.config;
  list.add("name", &model.name, {.help = "its name", .required = true});
  list.add("family", c.family, model_families(), {.help = "as in a configuration"});
  list.add("known", &model.known, {.help = "a model.name that has the sizes"});
  for (const auto& [name, size] : kSizes)
    list.add(name, &(c.*size), {.help = "as in a configuration", .min = 0});
  list.add("activation", c.activation, kMlpKinds, {.help = "as in a configuration"});
  list.add("tied", &c.tied, {.help = "as in a configuration"});
  list.add("qkv_bias", &c.qkv_bias, {.help = "as in a configuration"});
}

void list_step(PublishedStep& step, OptionList& list) {
  list.section("step", "A published step");
  const auto name = [&](std::string_view key, std::string& value, std::string_view help) {
    list.add(key, &value, {.help = help, .required = true});
  };
  name("program", step.program, "a [[program]]");
  name("model", step.model, "a [[model]]");
  name("machine", step.machine, "a machine's name or file");
  name("grid", step.grid, "x,y,z,data: tensor parallelism as x, shards of weights as z");
  const auto number = [&](std::string_view key, std::int64_t& value, std::string_view help) {
    list.add(key, &value, {.help = help, .min = 1, .required = true});
  };
  number("seq_len", step.seq_len, "tokens of a sequence");
  number("micro_batch", step.micro_batch, "sequences of a pass of a (z, data) coordinate");
  number("global_batch", step.batch, "sequences of a step");
  list.add("tokens_per_s", &step.tokens_per_s,
           {.help = "published speed of each device", .above = 0, .required = true});
  list.add("source", &step.source, {.help = "where it was published"});
  list.add("recompute", step.recompute, kRecomputeModes, {.help = "as activation_checkpoint.mode"});
  list.add("values", &step.values, {.help = "as activation_checkpoint.values"});
  list.add("chunks", &step.chunks, {.help = "as parallelism.chunks", .min = 1});
  list.add("context", &step.context, {.help = "as parallelism.context", .min = 1});
  list.add("experts", &step.experts, {.help = "as parallelism.experts", .min = 1});
  list.add("whole_weights", &step.whole_weights,
           {.help = "whether each rank has all weights but those of experts, so that gathers and "
                    "sums over z are once a step"});
  list.add("rows_once", &step.rows_once,
           {.help = "whether a row that several experts of another node want travels there once"});
  list.add("sequence_parallel", &step.sequence_parallel,
           {.help = "as parallelism.sequence_parallel"});
  list.add("stages", &step.stages, {.help = "of a pipeline, outside of the grid", .min = 1});
  list.add("stage_chunks", &step.stage_chunks,
           {.help = "chunks of layers of each of its stages", .min = 1});
  list.add("devices_per_node", &step.devices_per_node,
           {.help = "of this run, where it differs from the machine", .min = 0});
  list.add("node_bytes_per_s", &step.node_bytes_per_s,
           {.help = "of this run, where it differs from the machine", .min = 0});
}

/// The entry of this name, which must be there.
template <typename Entry>
const Entry& named(const std::vector<Entry>& entries, const char* kind, const std::string& name) {
  const auto found = std::ranges::find(entries, name, [](const Entry& one) { return one.name; });
  if (found == entries.end())
    refuse("a [[step]] names the ", kind, " '", name, "', of which there is no [[", kind, "]]");
  return *found;
}

/// Takes the sizes of the known model, or refuses those that are missing.
void complete(PublishedModel& model) {
  const bool any =
      std::ranges::any_of(kSizes, [&](const auto& size) { return model.config.*size.second > 0; });
  if (!model.known.empty()) {
    if (any)
      refuse("the [[model]] '", model.name, "' has `known` and sizes; leave one of them out");
    model.config = known_model(model.known);
    return;
  }
  for (const auto& [name, size] : std::span(kSizes).first(kNeededSizes))
    if (model.config.*size == 0)
      refuse("the [[model]] '", model.name, "' has no ", name, "; set it, or `known`");
}

/// The grid, with the stages of a pipeline if there is one: "8,1,1,128 (16 stages)".
std::string grid_cell(const PublishedStep& step) {
  return step.stages > 1 ? fmt::format("{} ({} stages)", step.grid, step.stages) : step.grid;
}

/// Seconds of the step in stages, of the seconds that all layers take on the grid of one.
double in_stages(const PublishedStep& step, const PreparedRun& run, const Machine& machine,
                 double whole_s) {
  const double stages = step.stages, chunks = step.stage_chunks,
               micro_batches = static_cast<double>(micro_batch_count(run.config()));
  const ParallelismConfig& p = run->parallelism;
  const bool cut = p.sequence_parallel;  // then each rank of x sends its rows
  const double rows = static_cast<double>(step.micro_batch * step.seq_len) / p.context /
                      (cut ? p.x : 1),
               bytes = rows * static_cast<double>(run->model.hidden) * bytes_of(DType::bf16);
  const double hop_s =
      machine.node_latency_s + bytes * machine.devices_per_node / machine.node_bytes_per_s;
  return whole_s / stages * (1 + (stages - 1) / (chunks * micro_batches)) +
         2 * (stages - 1) * hop_s;
}

/// Tokens per second of each device.
std::string rate(const PublishedStep& step, double seconds) {
  return format_count(std::llround(step.tokens_per_s * step.seconds() / seconds));
}

}  // namespace

const PublishedModel& PublishedSteps::model_of(const PublishedStep& step) const {
  return named(models, "model", step.model);
}

const OtherProgram& PublishedSteps::program_of(const PublishedStep& step) const {
  return named(programs, "program", step.program);
}

PublishedSteps read_published_steps(const std::string& file) {
  PublishedSteps all;
  OptionList list;
  list.repeated("model", "Models of published steps", all.models, list_model);
  list.repeated("program", "Programs whose steps were published", all.programs, list_options);
  list.repeated("step", "Published steps", all.steps, list_step);
  Origins origins;
  if (file.empty())
    read_toml_text(list, published_steps_file(), "machines/published/steps.toml", origins);
  else
    read_toml(list, file, origins);
  std::ranges::for_each(all.models, complete);
  for (const PublishedStep& step : all.steps) {
    all.model_of(step);
    all.program_of(step);
    parse_grid(step.grid);
  }
  return all;
}

PreparedRun PublishedSteps::run_of(const PublishedStep& step) const {
  Config config;
  config.model = model_of(step).config;
  config.model.bias = config.model.family != ModelFamily::gpt;
  config.parallelism.experts = step.experts;
  if (step.whole_weights) config.parallelism.keep_weights = KeepWeights::step;
  config.training = {.steps = 1, .seq_len = step.seq_len, .global_batch = step.batch};
  config.training.micro_batch = step.micro_batch;
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid(parse_grid(step.grid));
  config.parallelism.chunks = step.chunks;
  config.parallelism.context = step.context;
  config.parallelism.sequence_parallel = step.sequence_parallel;
  config.activation_checkpoint.mode = step.recompute;
  config.activation_checkpoint.values = step.values;
  config.data.synthetic = 1;  // without effect on a step's time, but a run needs data and a rate
  config.optimizer.lr = 1;
  // The device is that of the machine, not one of this build.
  return prepared(config).with(
      [&](Config& one) { one.parallelism.device = read_machine(step.machine).backend; });
}

Machine PublishedSteps::machine_of(const PublishedStep& step) const {
  Machine machine = read_machine(step.machine);
  machine.program = program_of(step);
  if (step.devices_per_node > 0) machine.devices_per_node = step.devices_per_node;
  if (step.node_bytes_per_s > 0) machine.node_bytes_per_s = step.node_bytes_per_s;
  const auto micro_batches = static_cast<double>(micro_batch_count(run_of(step).config()));
  if (step.whole_weights) machine.program.sums_over_z = 1 / micro_batches;
  if (machine.program.weights_once) machine.program.weight_casts = 1 / micro_batches;
  const double nodes = step.experts / machine.devices_per_node;
  if (step.rows_once && nodes > 1) {
    const double chosen = static_cast<double>(model_of(step).config.experts_per_token),
                 away = (nodes - 1) / nodes;  // of a token's choices, each on any node
    machine.program.node_rows = (1 - std::pow(away, chosen)) * nodes * away / (chosen * away);
  }
  return machine;
}

PredictedStep predict(const PublishedSteps& all, const PublishedStep& step) {
  return predict_on(all.machine_of(step), all, step);
}

PredictedStep predict_on(const Machine& machine, const PublishedSteps& all,
                         const PublishedStep& step) {
  const PreparedRun run = all.run_of(step);
  check_rates(machine, run->training.dtype, step.devices());
  const double whole_s = estimate(run, machine).time.step_s,
               seconds = step.stages > 1 ? in_stages(step, run, machine, whole_s) : whole_s;
  return {.seconds = seconds,
          .error = seconds / step.seconds() - 1,
          .range = machine.range_of(seconds)};
}

std::optional<Plan> best_plan(const PublishedSteps& all, const PublishedStep& step) {
  const PreparedRun free = all.run_of(step).with([](Config& config) {
    config.parallelism = {.device = config.parallelism.device};
    config.activation_checkpoint = {};
  });
  Machine machine = all.machine_of(step);
  machine.program = {};
  const auto plans = search(free, machine, {.devices = step.devices(), .top = 1}).plans;
  if (plans.empty()) return std::nullopt;
  return plans.front();
}

std::string table_head() {
  return "| machine | program | model | grid | published, tokens/s a device | predicted | off by | "
         "range | best grid | predicted |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | "
         "--- |\n";
}

std::string table_key(const PublishedStep& step) {
  return fmt::format("| {} | {} | {} | {} | ", step.machine, step.program, step.model,
                     grid_cell(step));
}

std::string table_row(const PublishedStep& step, const PredictedStep& predicted) {
  return table_key(step) + fmt::format("{} | {} | {:+.1f} % | {} to {} |",
                                       format_count(std::llround(step.tokens_per_s)),
                                       rate(step, predicted.seconds), 100 * predicted.error,
                                       rate(step, predicted.range.second),
                                       rate(step, predicted.range.first));
}

std::string best_cells(const PublishedStep& step, const std::optional<Plan>& best) {
  if (!best) return " none fits | |";
  return fmt::format(" {} | {} |", with_factors(best->grid), rate(step, best->time.step_s));
}

}  // namespace axonn
