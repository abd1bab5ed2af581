#include "axonn/train/run_log.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <numeric>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "axonn/base/chart.h"
#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/comm/texts.h"
#include "axonn/data/batches.h"
#include "axonn/model/model.h"

namespace axonn {

namespace {

/// Smooths a curve: the mean of a forward and a backward exponential moving average, each over
/// about a hundredth of the run, so that the result neither lags nor leads.
MetricsFile::Curve smoothed(const MetricsFile::Curve& curve) {
  const double keep = std::exp(-1.0 / std::max(1.0, static_cast<double>(curve.size()) / 100));
  MetricsFile::Curve forward = curve, backward = curve;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const std::size_t j = curve.size() - 1 - i;
    forward[i].second = keep * forward[i - 1].second + (1 - keep) * curve[i].second;
    backward[j].second = keep * backward[j + 1].second + (1 - keep) * curve[j].second;
  }
  for (std::size_t i = 0; i < curve.size(); ++i)
    forward[i].second = (forward[i].second + backward[i].second) / 2;
  return forward;
}

double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
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

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t after_step, std::size_t most_waiting)
    : path_(path), most_waiting_(most_waiting) {
  std::string kept;
  std::ifstream in;
  if (after_step > 0) in.open(path);
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    // Skips lines that a crash cut short or another program wrote.
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer())
      continue;
    const std::int64_t step = entry["step"];
    if (step > after_step) continue;
    kept += line + '\n';
    for (const auto& [key, curve] : {std::pair{"loss", &losses_}, {"val_loss", &validation_}})
      if (entry.contains(key) && entry[key].is_number())
        curve->emplace_back(step, entry[key].get<double>());
  }
  if (after_step > 0) write_file_atomically(path, kept);
  const int truncates = after_step > 0 ? 0 : O_TRUNC;
  file_ = FileHandle(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | truncates, 0666));
  if (file_.get() < 0)
    refuse("cannot write ", path, ": ", cause_and_remedy(errno),
           "; check that output.dir is a folder with write permission");
  written_ = std::ssize(kept);
}

std::string MetricsFile::write_rest() {
  while (!rest_.empty()) {
    const ssize_t put = ::pwrite(file_.get(), rest_.data(), rest_.size(), written_);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return concat("cannot write ", path_, ": ", cause_and_remedy(put < 0 ? errno : ENOSPC));
    written_ += put;
    within_line_ = rest_[put - 1] != '\n';
    rest_.erase(0, static_cast<std::size_t>(put));
  }
  return {};
}

/// Drops the older half of the lines that wait, but not the rest of one that is partly written.
void MetricsFile::drop_oldest() {
  const std::size_t from = within_line_ ? rest_.find('\n') + 1 : 0,
                    to = rest_.find('\n', from + (rest_.size() - from) / 2) + 1;
  const auto begin = rest_.begin();
  dropped_ += std::count(begin + from, begin + to, '\n');
  rest_.erase(from, to - from);
}

std::string MetricsFile::write(const StepMetrics& m) {
  // NaN and infinity are not valid JSON: written as null.
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
  };
  std::string line = fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "step_ms": {:.3f}, )"
      R"("tokens_per_s": {:.1f}, "model_tflops": {:.6g}, "mfu": {}, "exposed_comm_ms": {:.3f}, )"
      R"("memory_bytes": {})",
      m.step, number(m.loss), number(m.grad_norm), number(m.lr), m.tokens, m.step_ms,
      m.tokens_per_s, m.model_tflops, number(m.mfu), m.exposed_comm_ms, m.memory_bytes);
  std::string kinds;
  for (const auto& [kind, ms] : m.exposed_by)
    kinds += fmt::format(R"({}"{}": {:.3f})", kinds.empty() ? "" : ", ", kind, ms);
  if (!kinds.empty()) line += fmt::format(R"(, "exposed_comm_ms_by": {{{}}})", kinds);
  if (!std::isnan(m.val_loss)) line += fmt::format(R"(, "val_loss": {})", number(m.val_loss));
  if (!std::isnan(m.kept)) line += fmt::format(R"(, "goldfish_kept": {:.6f})", m.kept);
  if (m.skipped) line += R"(, "skipped": true)";
  if (m.save_failures > 0) line += fmt::format(R"(, "save_failures": {})", m.save_failures);
  rest_ += line + "}\n";
  if (rest_.size() > most_waiting_) drop_oldest();
  if (std::isfinite(m.loss)) losses_.emplace_back(m.step, m.loss);
  if (std::isfinite(m.val_loss)) validation_.emplace_back(m.step, m.val_loss);
  return write_rest();
}

std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation) {
  Chart chart{.title = title,
              .x = {.title = "step", .integers = true},
              .y = {.title = "loss (nats per token)"}};
  if (!losses.empty()) {
    const auto value = [](const auto& point) { return point.second; };
    chart.x.low = losses.front().first;
    chart.x.high = std::max(chart.x.low + 1, losses.back().first);
    chart.y.low = std::ranges::min(losses, {}, value).second;
    chart.y.high = std::ranges::max(losses, {}, value).second;
    for (const auto& point : validation) chart.y.low = std::min(chart.y.low, point.second);
    const double margin = std::max(0.05 * (chart.y.high - chart.y.low), 1e-3);
    chart.y.low -= margin;
    chart.y.high += margin;
    chart.lines.push_back({.points = losses, .color = "#9ecae1", .width = 1});
    chart.lines.push_back(
        {.points = smoothed(losses), .color = "#2171b5", .name = "training loss"});
  }
  if (!validation.empty())
    chart.lines.push_back({.points = validation,
                           .color = "#e6550d",
                           .name = fmt::format("validation {:.3f}", validation.back().second)});
  for (const auto& [step, loss] : validation)
    chart.points.push_back({.x = step, .y = loss, .color = "#e6550d"});
  return to_svg(chart);
}

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
  if (const std::int64_t windows = training.validation_windows(); windows > 0)
    log_.info(
        fmt::format("validation: {} sequences, {}after the last step", format_count(windows),
                    t.eval_every > 0 ? fmt::format("every {} steps and ", t.eval_every) : ""));
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
  const double tflops =
      per_second * model_flops_per_token(config_.model, config_.training.seq_len) * 1e-12;
  const double peak = config_.parallelism.peak_tflops * world_.size();
  line_ = {.step = step,
           .loss = result.loss,
           .grad_norm = result.grad_norm,
           .lr = input.lr,
           .tokens = line_.tokens + input.inputs,
           .step_ms = seconds * 1e3,
           .tokens_per_s = per_second,
           .model_tflops = tflops,
           .mfu = peak > 0 ? tflops / peak : StepMetrics::kNone,
           .exposed_comm_ms = waited * 1e3,
           .memory_bytes = training.model.arena().stats().peak_bytes};
  for (const auto& [kind, wait] : waits)
    if (wait > 0) line_.exposed_by.emplace_back(kind, wait * 1e3);
  counted_ += input.tokens;
  targets_ += input.all_targets;
  if (config_.training.goldfish.k > 0) line_.kept = ratio(input.tokens, input.all_targets);
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
  skipped_ += result.applied ? 0 : 1;
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
  if (!first()) return;
  const std::int64_t dropped = metrics_->dropped();
  const std::string fault = metrics_->write(line_);
  if (!fault.empty() && metrics_fault_.empty())
    log_.warn(fault + "; its lines are kept in memory until they can be written");
  if (dropped == 0 && metrics_->dropped() > 0)
    log_.warn("too many lines of metrics.jsonl wait to be written: the oldest are dropped");
  metrics_fault_ = fault;
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
  if (skipped_ > 0)
    log_.warn(
        fmt::format("{} of {} steps were skipped as outliers", skipped_, line_.step - first_step_));
  if (save_failures_ > 0)
    log_.warn(fmt::format("{} checkpoint{} failed; the last one is complete", save_failures_,
                          plural(save_failures_)));
  if (!metrics_fault_.empty()) metrics_fault_ = metrics_->write_rest();  // the disk may have room
  const std::int64_t dropped = first() ? metrics_->dropped() : 0;
  if (dropped > 0)
    log_.warn(fmt::format("metrics.jsonl lacks {} line{} that could not be written", dropped,
                          plural(dropped)));
  AXONN_CHECK(metrics_fault_.empty(), metrics_fault_);
}

void RunLog::draw() {
  if (!first()) return;
  const std::string title =
      fmt::format("{} parameters on grid {}", format_count(parameter_count(config_.model)),
                  to_string(config_.parallelism.grid()));
  const std::string fault = fault_of([&] {
    write_file_atomically(config_.output.dir + "/loss.svg",
                          loss_svg(title, metrics_->losses(), metrics_->validation()));
  });
  if (!fault.empty()) log_.warn(fault);
}

}  // namespace axonn
