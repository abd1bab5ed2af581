#include "axonn/train/run_log.h"

#include <fmt/format.h>

#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/data/batches.h"
#include "axonn/model/model.h"
#include "axonn/train/stragglers.h"

namespace axonn {

namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

const char* plural(std::int64_t count) { return count == 1 ? "" : "s"; }

}  // namespace

void RunLog::describe(Training& training, int threads) {
  if (!first()) return;
  const Config& config = training.model.config();
  const ModelConfig& m = config.model;
  const std::string sizes = training.model.model().describe();
  log_.info(fmt::format(
      "model: {} parameters, {}{}vocabulary {}{}", format_count(parameter_count(m)), sizes,
      sizes.empty() ? "" : ", ", format_count(m.vocab),
      m.lora.rank > 0 ? fmt::format("; frozen, with adapters of rank {}", m.lora.rank) : ""));
  const Device& device = training.model.backend().device();
  const std::string each =
      device.uuid().empty() ? fmt::format("{} thread{}", threads, plural(threads)) : device.name();
  const ParallelismConfig& p = config.parallelism;
  log_.info(fmt::format("grid: x {}, y {}, z {}, data {}: {} rank{}, {} each, {}", p.x, p.y, p.z,
                        p.data, world_.size(), plural(world_.size()), each,
                        name_of(config.training.dtype)));
  const TrainingConfig& t = config.training;
  log_.info(fmt::format(
      "step: {} sequences of {} tokens, in micro-batches of {}; about {:.2f} epochs in the whole "
      "run",
      t.global_batch, t.seq_len, t.micro_batch,
      ratio(t.steps * t.global_batch, training.batches->sequences().count())));
  if (training.step.graphs())
    log_.info("graphs: captured in the second step, launched from then on");
}

void RunLog::begin(const Config& config, std::int64_t first_step, std::int64_t tokens_seen) {
  config_ = config;
  first_step_ = first_step;
  line_.tokens = tokens_seen;
  if (first())
    metrics_ = std::make_unique<MetricsFile>(config.output.dir + "/metrics.jsonl", first_step);
  began_ = now_seconds();
}

void RunLog::step(Training& training, const StepInput& input, const StepResult& result,
                  const StepTime& time) {
  const std::int64_t step = input.step + 1;
  double waited = 0;
  for (const auto& [kind, seconds] : time.waited) waited += seconds;
  const bool prints = step % config_.output.log_every == 0 || step == config_.training.steps;
  if (prints) {
    const std::string slow = stragglers(training.model.grid(), time.seconds - waited);
    if (first() && !slow.empty()) log_.warn(slow);
  }
  const double per_second = static_cast<double>(input.inputs) / time.seconds;
  const double tflops =
      per_second * model_flops_per_token(config_.model, config_.training.seq_len) * 1e-12;
  const double peak = config_.parallelism.peak_tflops * world_.size();
  line_ = {.step = step,
           .loss = result.loss,
           .grad_norm = result.grad_norm,
           .lr = input.lr,
           .tokens = line_.tokens + input.inputs,
           .step_ms = time.seconds * 1e3,
           .tokens_per_s = per_second,
           .model_tflops = tflops,
           .mfu = peak > 0 ? tflops / peak : StepMetrics::kNone,
           .exposed_comm_ms = waited * 1e3,
           .memory_bytes = training.model.arena().stats().peak_bytes};
  for (const auto& [kind, seconds] : time.waited)
    if (seconds > 0) line_.exposed_by.emplace_back(kind, seconds * 1e3);
  counted_ += input.tokens;
  targets_ += input.all_targets;
  if (config_.training.goldfish.k > 0) line_.kept = ratio(input.tokens, input.all_targets);
  seconds_since_print_ += time.seconds;
  ++steps_since_print_;
  if (prints) {
    // Rates are means of the steps since the last line.
    print_step(static_cast<double>(steps_since_print_) * time.seconds / seconds_since_print_);
    seconds_since_print_ = 0;
    steps_since_print_ = 0;
  }
  if (!result.applied)
    log_.warn(fmt::format("step {} skipped: loss {:.4f}, gradient norm {:.3g} are outliers", step,
                          result.loss, result.grad_norm));
}

/// Prints the last step. Rates are multiplied by `share`.
void RunLog::print_step(double share) {
  if (!first()) return;
  const std::int64_t steps = config_.training.steps;
  const double mean = (now_seconds() - began_) / static_cast<double>(line_.step - first_step_);
  log_.step(
      {.step = line_.step,
       .steps = steps,
       .loss = line_.loss,
       .grad_norm = line_.grad_norm,
       .memory_bytes = line_.memory_bytes,
       .tokens_per_second = line_.tokens_per_s * share,
       .tflops = line_.model_tflops * share,
       .mfu = config_.parallelism.peak_tflops > 0 ? std::optional(line_.mfu * share) : std::nullopt,
       .seconds_left = mean * static_cast<double>(steps - line_.step)});
}

void RunLog::validated(double loss, std::int64_t windows, double seconds) {
  line_.val_loss = loss;
  log_.info(fmt::format("validation: step {}  loss {:.4f}  ({} windows in {})", line_.step, loss,
                        format_count(windows), format_duration(seconds)));
}

void RunLog::write_metrics() {
  if (first()) metrics_->write(line_);
}

void RunLog::saved(const SaveCost& cost) {
  log_.info(fmt::format("saved {}: {} in {} (training waited {})", cost.folder,
                        format_bytes(cost.bytes), format_duration(cost.write_seconds),
                        format_duration(cost.stall_seconds)));
  draw();
}

void RunLog::finish() {
  draw();
  if (config_.training.goldfish.k > 0 && targets_ > 0)
    log_.info(fmt::format("goldfish: {:.2f} % of {} targets counted in the loss",
                          100 * ratio(counted_, targets_), format_count(targets_)));
}

void RunLog::draw() {
  if (!first()) return;
  const std::string title =
      fmt::format("{} parameters on grid {}", format_count(parameter_count(config_.model)),
                  to_string(config_.parallelism.grid()));
  write_file_atomically(config_.output.dir + "/loss.svg",
                        loss_svg(title, metrics_->losses(), metrics_->validation()));
}

}  // namespace axonn
