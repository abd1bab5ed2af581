#include "axonn/run/records/metrics_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/files.h"
#include "axonn/foundation/drawing/chart.h"
#include "axonn/run/records/run_steps.h"

namespace axonn {

namespace {

/// Smooths a curve: the mean of a forward and a backward exponential moving average, each over
/// about a hundredth of the run, so that the result neither lags nor leads.
LossCurves::Curve smoothed(const LossCurves::Curve& curve) {
  const double keep = std::exp(-1.0 / std::max(1.0, static_cast<double>(curve.size()) / 100));
  LossCurves::Curve forward = curve, backward = curve;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const std::size_t j = curve.size() - 1 - i;
    forward[i].second = keep * forward[i - 1].second + (1 - keep) * curve[i].second;
    backward[j].second = keep * backward[j + 1].second + (1 - keep) * curve[j].second;
  }
  for (std::size_t i = 0; i < curve.size(); ++i)
    forward[i].second = (forward[i].second + backward[i].second) / 2;
  return forward;
}

}  // namespace

std::string to_line(const StepMetrics& m) {
  // NaN and infinity are not valid JSON: written as null.
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
  };
  std::string line = fmt::format(
      R"({{"step": {}, "time": {:.3f}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, )"
      R"("epoch": {:.6g}, "step_ms": {:.3f}, "tokens_per_s": {:.1f}, "model_tflops": {:.6g}, )"
      R"("mfu": {}, )"
      R"("exposed_comm_ms": {:.3f}, "memory_bytes": {})",
      m.step, m.time, m.has_loss ? number(m.loss) : "null", number(m.grad_norm), number(m.lr),
      m.tokens, m.epoch, m.step_ms, m.tokens_per_s, m.model_tflops, number(m.mfu),
      m.exposed_comm_ms, m.memory_bytes);
  std::string kinds;
  for (const auto& [kind, ms] : m.exposed_by)
    kinds += fmt::format(R"({}"{}": {:.3f})", kinds.empty() ? "" : ", ", kind, ms);
  if (!kinds.empty()) line += fmt::format(R"(, "exposed_comm_ms_by": {{{}}})", kinds);
  if (!std::isnan(m.val_loss)) line += fmt::format(R"(, "val_loss": {})", number(m.val_loss));
  if (!std::isnan(m.val_loss_ema))
    line += fmt::format(R"(, "val_loss_ema": {})", number(m.val_loss_ema));
  if (!std::isnan(m.kept)) line += fmt::format(R"(, "goldfish_kept": {:.6f})", m.kept);
  for (const Metric& metric : m.metrics)
    line += fmt::format(R"(, "{}": {})", metric.name,
                        metric.decimals < 0 || !std::isfinite(metric.value)
                            ? number(metric.value)
                            : fmt::format("{:.{}f}", metric.value, metric.decimals));
  for (const Metric& metric : m.val_metrics)
    line += fmt::format(R"(, "val_{}": {})", metric.name, number(metric.value));
  if (m.batch > 0) line += fmt::format(R"(, "batch": {})", m.batch);
  if (!m.stage.empty()) line += fmt::format(R"(, "stage": {})", nlohmann::json(m.stage).dump());
  if (!m.has_loss) line += R"(, "no_targets": true)";
  if (m.skipped) line += R"(, "skipped": true)";
  if (m.save_failures > 0) line += fmt::format(R"(, "save_failures": {})", m.save_failures);
  return line + "}";
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t after_step, std::size_t most_waiting)
    : file_(path, keep(path, after_step), most_waiting) {}

/// Keeps the lines up to a step. Returns their bytes.
std::int64_t MetricsFile::keep(const std::string& path, std::int64_t after_step) {
  return keep_steps(path, after_step, [this](const RunStep& step) {
    for (const auto& [key, curve] : {std::pair{"loss", &losses_.training},
                                     {"val_loss", &losses_.validation},
                                     {"val_loss_ema", &losses_.averages}})
      if (const double value = step.value_of(key); std::isfinite(value))
        curve->emplace_back(step.step, value);
  });
}

std::string MetricsFile::write(const StepMetrics& m) {
  for (const auto& [value, curve] :
       {std::pair{m.has_loss ? m.loss : StepMetrics::kNone, &losses_.training},
        {m.val_loss, &losses_.validation},
        {m.val_loss_ema, &losses_.averages}})
    if (std::isfinite(value)) curve->emplace_back(m.step, value);
  return file_.append(to_line(m) + "\n");
}

std::string loss_svg(const std::string& title, const LossCurves& losses) {
  Chart chart{.title = title,
              .x = {.title = "step", .integers = true},
              .y = {.title = "loss (nats per token)"}};
  if (const LossCurves::Curve& training = losses.training; !training.empty()) {
    chart.x.low = training.front().first;
    chart.x.high = std::max(chart.x.low + 1, training.back().first);
    chart.y.low = chart.y.high = training.front().second;
    for (const LossCurves::Curve* curve : {&training, &losses.validation, &losses.averages})
      for (const auto& [step, loss] : *curve) {
        chart.y.low = std::min(chart.y.low, loss);
        chart.y.high = std::max(chart.y.high, loss);
      }
    const double margin = std::max(0.05 * (chart.y.high - chart.y.low), 1e-3);
    chart.y.low -= margin;
    chart.y.high += margin;
    chart.lines.push_back({.points = training, .color = "#9ecae1", .width = 1});
    chart.lines.push_back(
        {.points = smoothed(training), .color = "#2171b5", .name = "training loss"});
  }
  const auto draw_validation = [&](const LossCurves::Curve& curve, const std::string& name,
                                   const std::string& color) {
    if (curve.empty()) return;
    chart.lines.push_back({.points = curve,
                           .color = color,
                           .name = fmt::format("{} {:.3f}", name, curve.back().second)});
    for (const auto& [step, loss] : curve)
      chart.points.push_back({.x = step, .y = loss, .color = color});
  };
  draw_validation(losses.validation, "validation", "#e6550d");
  draw_validation(losses.averages, "of averaged weights", "#31a354");
  return to_svg(chart);
}

}  // namespace axonn
