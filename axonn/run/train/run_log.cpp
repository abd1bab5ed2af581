#include "axonn/run/train/run_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/counts.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/run/train/data_stages.h"

namespace axonn {

namespace {

/// NaN of nothing.
double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

const char* plural(std::int64_t count) { return count == 1 ? "" : "s"; }

/// Finds the rank that slows the others down. Returns a line that names the slowest rank and its
/// coordinates on each axis, with their times relative to the mean, if it computes at least a
/// quarter longer than the mean of all ranks; otherwise "". `seconds` is this rank's time without
/// its waits. Collective over the grid's world; waits.
std::string stragglers(const Grid& grid, double seconds) {
  // A smaller ratio, or a ratio of steps shorter than this (seconds), is noise.
  constexpr double kWorthSaying = 1.25, kShortest = 0.1;
  const int ranks = grid.world().size();
  std::vector<double> all(ranks);
  grid.world().all_gather(buffer(std::span(all)), {&seconds, 1, DType::f64}, "stragglers").wait();
  const double mean = std::accumulate(all.begin(), all.end(), 0.0) / ranks;
  const auto slowest = std::ranges::max_element(all);
  if (mean < kShortest || *slowest < kWorthSaying * mean) return {};

  const Coords coords = coords_of(grid.shape(), static_cast<int>(slowest - all.begin()));
  std::string line = fmt::format("slowest: rank {} computes {:.2f} times as long as the mean",
                                 slowest - all.begin(), *slowest / mean);
  for (Axis axis : kAxes) {
    if (grid.extent(axis) == 1) continue;
    double sum = 0;
    for (int r = 0; r < ranks; ++r)
      if (coords_of(grid.shape(), r).at(axis) == coords.at(axis)) sum += all[r];
    line += fmt::format("; {} {}: {:.2f}", name_of(axis), coords.at(axis),
                        sum * grid.extent(axis) / ranks / mean);
  }
  return line;
}

/// A line for each kind of keys that the model's config.json has for trainings, and that this one
/// does not follow.
std::vector<std::string> unread_keys_of_model(const Config& config) {
  std::vector<std::string> notes;
  const ModelFiles* const files = config.model_files.model.get();
  if (!files || files->checkpoint() || is_gguf(files->path())) return notes;
  const UnreadTrainingKeys unread = read_unread_training_keys(files->path());
  if (!unread.dropout.empty())
    notes.push_back(concat("config.json has ", join(unread.dropout),
                           ", which has no effect: only adapters have dropout (lora.dropout)"));
  const BalanceConfig& balance = config.training.balance;
  if (unread.balance > 0 &&
      (unread.balance != balance.weight || balance.scope != BalanceScope::hugging_face))
    notes.push_back(concat("config.json has router_aux_loss_coef = ", unread.balance,
                           " with output_router_logits, which has no effect; the same is "
                           "training.balance.weight = ",
                           unread.balance, " and training.balance.scope = \"hugging_face\""));
  return notes;
}

}  // namespace

/// Logs a line of the run's description.
void RunLog::say(const std::string& line) {
  shows_description_ ? log_.info(line) : log_.note(line);
  description_ += "- " + line + "\n";
}

void RunLog::describe(Training& training, int threads, bool shown) {
  if (!first()) return;
  shows_description_ = shown;
  const Config& config = training.model.config();
  const ModelConfig& m = config.model;
  const std::string sizes = training.model.model().describe();
  say(fmt::format(
      "model: {}, {}{}vocabulary {}{}", parameters_text(m), sizes, sizes.empty() ? "" : ", ",
      format_count(m.vocab),
      m.lora.rank > 0 ? fmt::format("; frozen, with adapters of rank {}", m.lora.rank) : ""));
  for (const std::string& note : unread_keys_of_model(config)) say("model: " + note);
  const Device& device = training.model.backend().device();
  const std::string each =
      device.uuid().empty() ? fmt::format("{} thread{}", threads, plural(threads)) : device.name();
  const ParallelismConfig& p = config.parallelism;
  say(fmt::format("grid: x {}, y {}, z {}{}, data {}: {} rank{}, {} each, {}", p.x, p.y, p.z,
                  factors_text(p.grid()), p.data, world_.size(), plural(world_.size()), each,
                  name_of(config.training.dtype)));
  if (m.heads % p.x != 0)
    say(fmt::format("grid: x = {} computes {} heads, of which the model has {}", p.x,
                    (m.heads + p.x - 1) / p.x * p.x, m.heads));
  const TrainingConfig& t = config.training;
  const Batches& batches = *training.batches;
  say(fmt::format("step: {} sequences of {} tokens{}, in micro-batches of {}{}", t.global_batch,
                  t.seq_len, padding_text(config), t.micro_batch,
                  config.stage.empty()
                      ? fmt::format("; {} steps are about {:.2f} epochs", format_count(t.steps),
                                    epochs_of(config, batches, 0))
                      : ""));
  for (const std::string& stage : describe_stages(config, batches)) say("stage: " + stage);
  for (const BatchSource& source : batches.sources())
    for (const std::string& note : source.sequences->notes()) say("data: " + note);
  for (const auto& corpus : training.corpora)
    for (const std::string& warning : corpus->warnings) log_.warn(warning);
  if (config.activation_checkpoint.budget > 0 ||
      config.activation_checkpoint.mode != RecomputeMode::none ||
      config.activation_checkpoint.blocks > 0)
    say("activations: " + describe_recomputation(config));
  if (const auto stages = batch_stages(t); stages.size() > 1)
    say(fmt::format("batch: rises from {} to {} sequences until {} are consumed",
                    stages.front().batch, t.global_batch,
                    format_count(stages[stages.size() - 2].until)));
  if (const std::int64_t windows = training.validation_windows(); windows > 0)
    say(fmt::format("validation: {} sequences, {}after the last step", format_count(windows),
                    t.eval_every > 0 ? fmt::format("every {} steps and ", t.eval_every) : ""));
  if (training.step.graphs()) say("graphs: captured in the second step, launched from then on");
}

void RunLog::begin(const Config& config, const std::optional<std::string>& config_text,
                   const RunState& state) {
  const std::int64_t first_step = state.steps_done;
  config_ = config;
  first_step_ = first_step;
  line_.tokens = state.tokens_seen;
  best_ = state.best;
  if (config_text && first()) {
    metrics_ = std::make_unique<MetricsFile>(config.output.dir + "/metrics.jsonl", first_step);
    if (!config.samples.prompts.empty() || path_exists(config.output.dir + '/' + kSamplesFile))
      samples_ = std::make_unique<SamplesFile>(config.output.dir, first_step);
    const double time = seconds_since_1970();
    const std::string next = next_event_file(config.output.dir, time, first_step);
    if (config.output.tensorboard) {
      events_ = std::make_unique<EventFile>(next, time, first_step + 1);
      events_->write_text(first_step + 1, time, "run", description_);
      events_->write_text(first_step + 1, time, "config", as_code(*config_text));
    }
  }
  began_ = now_seconds();
}

void RunLog::step(Training& training, const StepInput& input, const StepResult& result,
                  double seconds, const NamedSeconds& waits) {
  const std::int64_t step = input.step + 1;
  double waited = 0;
  for (const auto& [kind, wait] : waits) waited += wait;
  const bool prints = step % config_.output.log_every == 0 || step == config_.training.steps;
  if (prints) {
    const std::string slow = stragglers(training.model.grid(), seconds - waited);
    if (first() && !slow.empty()) log_.warn(slow);
  }
  const double per_second = static_cast<double>(input.inputs) / seconds;
  const BatchSource& source = training.batches->source_of(input.step);
  const double tflops =
      per_second *
      training.model.model().flops_per_token(config_.training.seq_len / source.in_one) * 1e-12;
  if (source.name != line_.stage)
    log_.info(fmt::format("stage: {} {} with step {}", source.name,
                          input.step == source.first_step ? "begins" : "goes on", step));
  const double peak = config_.parallelism.peak_tflops * world_.size();
  line_ = {.step = step,
           .loss = result.loss,
           .has_loss = result.has_loss,
           .grad_norm = result.grad_norm,
           .lr = input.lr,
           .tokens = line_.tokens + input.inputs,
           .epoch = ratio(training.batches->first_of(input.step) +
                              training.batches->batch_of(input.step) * source.in_one,
                          source.sequences->count()),
           .step_ms = seconds * 1e3,
           .tokens_per_s = per_second,
           .model_tflops = tflops,
           .mfu = peak > 0 ? tflops / peak : StepMetrics::kNone,
           .exposed_comm_ms = waited * 1e3,
           .memory_bytes = training.model.arena().stats().peak_bytes,
           .metrics = result.metrics,
           .stage = source.name};
  for (const auto& [kind, wait] : waits)
    if (wait > 0) line_.exposed_by.emplace_back(kind, wait * 1e3);
  const TrainingConfig& t = config_.training;
  if (!t.batch_ramp.empty() || !t.batch_stages.empty())
    line_.batch = training.batches->batch_of(input.step);
  counted_ += input.tokens;
  targets_ += input.all_targets;
  if (config_.training.goldfish.k > 0) line_.kept = ratio(input.tokens, input.all_targets);
  if (!result.has_loss) note_without_loss(step);
  seconds_since_print_ += seconds;
  ++steps_since_print_;
  if (prints) {
    // Rates are means of the steps since the last line.
    print_step(static_cast<double>(steps_since_print_) * seconds / seconds_since_print_);
    seconds_since_print_ = 0;
    steps_since_print_ = 0;
  }
  line_.skipped = !result.applied;
  line_.save_failures = save_failures_;
  if (!result.applied) note_skipped(step, input, result, training.step.loss_scale().scale());
}

/// Counts and reports a step that was skipped. next_scale: LossScale::scale().
void RunLog::note_skipped(std::int64_t step, const StepInput& input, const StepResult& result,
                          double next_scale) {
  if (result.overflow) {
    ++overflows_;
    log_.info(fmt::format(
        "step {} skipped: its gradients overflow with a loss scale of {}; the next step's is {}",
        step, input.loss_scale, next_scale));
    return;
  }
  ++outliers_;
  log_.warn(fmt::format("step {} skipped: loss {:.4f}, gradient norm {:.3g} are outliers", step,
                        result.loss, result.grad_norm));
}

/// Notes that no target of a step counts. Warns of the first one.
void RunLog::note_without_loss(std::int64_t step) {
  if (without_loss_++ == 0)
    log_.warn(fmt::format("step {} has no loss: none of its targets counts", step));
}

/// Prints the last step. Rates are multiplied by `share`.
void RunLog::print_step(double share) {
  if (!first()) return;
  const std::int64_t steps = config_.training.steps;
  std::vector<std::pair<std::string_view, double>> figures;
  for (const Metric& metric : line_.metrics)
    if (!metric.in_line.empty()) figures.emplace_back(metric.in_line, metric.value);
  const double mean = (now_seconds() - began_) / static_cast<double>(line_.step - first_step_);
  log_.step(
      {.step = line_.step,
       .steps = steps,
       .loss = line_.has_loss ? std::optional(line_.loss) : std::nullopt,
       .grad_norm = line_.grad_norm,
       .lr = line_.lr,
       .tokens = line_.tokens,
       .epoch = line_.epoch,
       .best_validation = best_.step > 0 ? std::optional(best_.loss) : std::nullopt,
       .figures = std::move(figures),
       .memory_bytes = line_.memory_bytes,
       .tokens_per_second = line_.tokens_per_s * share,
       .tflops = line_.model_tflops * share,
       .mfu = config_.parallelism.peak_tflops > 0 ? std::optional(line_.mfu * share) : std::nullopt,
       .seconds_left = mean * static_cast<double>(steps - line_.step)});
}

void RunLog::validated(double loss, std::optional<double> of_averages, std::int64_t windows,
                       double seconds) {
  line_.val_loss = loss;
  best_.note(loss, line_.step);
  if (of_averages) line_.val_loss_ema = *of_averages;
  log_.info(
      fmt::format("validation: step {}  loss {:.4f}{}  ({} windows in {})", line_.step, loss,
                  of_averages ? fmt::format("  of averaged weights {:.4f}", *of_averages) : "",
                  format_count(windows), format_duration(seconds)));
}

void RunLog::validated_figures(std::vector<Metric> figures) {
  line_.val_metrics = std::move(figures);
}

void RunLog::sampled(std::vector<TextSample> samples, double seconds) {
  log_.info(fmt::format("samples: step {}: {} text{} in {}", line_.step, samples.size(),
                        plural(std::ssize(samples)), format_duration(seconds)));
  if (!first()) return;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].step = line_.step;
    samples[i].time = seconds_since_1970();
    samples[i].number = static_cast<int>(i) + 1;
    samples_->write(samples[i]);
    if (events_)
      events_->write_text(samples[i].step, samples[i].time, samples[i].tag(),
                          to_markdown(samples[i]));
  }
}

/// The files that get each step; none on other ranks than the first.
std::vector<RecordFile*> RunLog::files() {
  std::vector<RecordFile*> all;
  if (metrics_) all.push_back(&metrics_->records());
  if (events_) all.push_back(&events_->records());
  if (samples_) all.push_back(&samples_->records());
  return all;
}

void RunLog::write_metrics() {
  if (!first()) return;
  line_.time = seconds_since_1970();
  metrics_->write(line_);
  if (events_) events_->write(*parse_run_step(to_line(line_)));
  for (RecordFile* file : files())
    for (const std::string& warning : file->take_warnings()) log_.warn(warning);
}

void RunLog::saved(const SaveCost& cost) {
  log_.info(fmt::format("saved {}: {} in {} (training waited {})", cost.folder,
                        format_bytes(cost.bytes), format_duration(cost.write_seconds),
                        format_duration(cost.stall_seconds)));
  for (const std::string& warning : cost.warnings) log_.warn(warning);
  draw();
}

void RunLog::save_failed(const std::string& why) {
  ++save_failures_;
  log_.warn(fmt::format("{}; training goes on ({} checkpoint{} of this run failed)", why,
                        save_failures_, plural(save_failures_)));
}

void RunLog::finish() {
  draw();
  if (config_.training.goldfish.k > 0 && targets_ > 0)
    log_.info(fmt::format("goldfish: {:.2f} % of {} targets counted in the loss",
                          100 * ratio(counted_, targets_), format_count(targets_)));
  if (without_loss_ > 0)
    log_.warn(fmt::format("{} of {} steps had no loss: none of their targets counted",
                          without_loss_, line_.step - first_step_));
  if (outliers_ > 0)
    log_.warn(fmt::format("{} of {} steps were skipped as outliers", outliers_,
                          line_.step - first_step_));
  if (overflows_ > 0)
    log_.info(fmt::format("{} of {} steps were skipped because their gradients overflowed f16",
                          overflows_, line_.step - first_step_));
  if (save_failures_ > 0)
    log_.warn(fmt::format("{} checkpoint{} failed; the last one is complete", save_failures_,
                          plural(save_failures_)));
  for (RecordFile* file : files()) {
    if (!file->fault().empty()) file->write_rest();  // the disk may have room
    if (file->dropped() > 0)
      log_.warn(fmt::format("{} lacks {} line{} that could not be written", file->path(),
                            file->dropped(), plural(file->dropped())));
  }
  for (const RecordFile* file : files()) AXONN_CHECK(file->fault().empty(), file->fault());
}

void RunLog::draw() {
  if (!metrics_) return;
  const std::string title = fmt::format("{} on grid {}", parameters_text(config_.model),
                                        to_string(config_.parallelism.grid()));
  const std::string fault = fault_of([&] {
    write_file_atomically(config_.output.dir + "/loss.svg", loss_svg(title, metrics_->losses()));
  });
  if (!fault.empty()) log_.warn(fault);
}

}  // namespace axonn
