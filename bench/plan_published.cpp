// plan_published FILE.svg: compares the planner's predictions with the measurements of arXiv
// 2502.08145, each left out of the fit of the machine's constants, and with published steps of
// other programs, of which each source is left out. Prints the tables, and writes the picture, of
// docs/planning-model.md; `axonn plan --published` has that of the other programs.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "axonn/foundation/drawing/chart.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/published/published.h"

#include "tests/plan/planner/published.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr double kLow = 4, kHigh = 40;  // seconds; all runs are between these
constexpr double kEdge = 1.12;          // factor by which the axes extend beyond kHigh

Chart::Line line(double factor, const char* color, bool dashed, const char* name) {
  return {.points = {{kLow, kLow * factor}, {kHigh, kHigh * factor}},
          .color = color,
          .width = dashed ? 1.0 : 1.5,
          .dashed = dashed,
          .name = name};
}

/// The figures that are fitted to published steps: rates of products, the half sizes, and what
/// programs move in multiples of this program's fused operations.
struct Fitted {
  double h100 = 720e12, a100 = 250e12, half = 64, library = 2, eager = 4, attention = 1.75;
};

/// The step's error with these figures in place of those of the files.
double computed_error(const PublishedSteps& all, const PublishedStep& step, const Fitted& fitted) {
  constexpr Fitted kFiles;
  Machine machine = all.machine_of(step);
  const bool is_a100 = machine.device.starts_with("A100");
  const double times = is_a100 ? fitted.a100 / kFiles.a100 : fitted.h100 / kFiles.h100;
  if (step.machine != "alps") {  // whose figures are another publication's
    for (double* const rate : {&machine.bf16.flops_per_s, &machine.attention_flops_per_s})
      *rate *= times;
    for (double* const half : {&machine.bf16.half_m, &machine.bf16.half_n, &machine.bf16.half_k})
      *half = fitted.half;
  }
  double& passes = machine.program.rowwise_passes;
  if (passes == kFiles.library) passes = fitted.library;
  if (passes == kFiles.eager) passes = fitted.eager;
  double& attention = machine.program.attention_speed;
  if (attention == kFiles.attention) attention = fitted.attention;
  return predict_on(machine, all, step).error;
}

/// computed_error(), of the figures that count for the step, each of which is computed once.
double error_of(const PublishedSteps& all, const PublishedStep& step, const Fitted& fitted) {
  static std::map<std::array<double, 5>, double> known;
  const OtherProgram& program = all.program_of(step);
  const bool is_a100 = all.machine_of(step).device.starts_with("A100");
  const double passes = program.rowwise_passes == Fitted{}.library ? fitted.library
                        : program.rowwise_passes == Fitted{}.eager ? fitted.eager
                                                                   : 1;
  const std::array<double, 5> key{static_cast<double>(&step - all.steps.data()),
                                  is_a100 ? fitted.a100 : fitted.h100, fitted.half, passes,
                                  program.attention_speed == 1 ? 1 : fitted.attention};
  const auto [error, added] = known.try_emplace(key);
  if (added) error->second = computed_error(all, step, fitted);
  return error->second;
}

/// Fits one figure after another to all steps but those of a source, twice.
Fitted fitted_to_others(const PublishedSteps& all, const std::string& source) {
  const auto mean_error = [&](const Fitted& fitted) {
    double sum = 0;
    for (const PublishedStep& step : all.steps)
      if (step.source != source) sum += std::abs(error_of(all, step, fitted));
    return sum;
  };
  Fitted best;
  double least = mean_error(best);
  const auto try_all = [&](double Fitted::*figure, std::initializer_list<double> values) {
    for (const double value : values) {
      Fitted other = best;
      other.*figure = value;
      if (const double error = mean_error(other); error < least) {
        least = error;
        best = other;
      }
    }
  };
  for (int round = 0; round < 2; ++round) {
    try_all(&Fitted::h100, {680e12, 700e12, 720e12, 740e12, 760e12});
    try_all(&Fitted::a100, {240e12, 250e12, 260e12, 270e12, 280e12});
    try_all(&Fitted::half, {32, 64, 96, 128});
    try_all(&Fitted::library, {1, 1.25, 1.5, 2, 2.5});
    try_all(&Fitted::eager, {2, 2.5, 3, 3.5, 4, 5});
    try_all(&Fitted::attention, {1, 1.25, 1.5, 1.75, 2, 2.25});
  }
  return best;
}

/// Prints the errors of each source's steps by figures that are fitted to the others.
void leave_sources_out() {
  const PublishedSteps all = read_published_steps();
  std::map<std::string, std::vector<double>> errors;
  for (const PublishedStep& step : all.steps) errors[step.source];
  double sum = 0, worst = 0;
  for (auto& [source, of_source] : errors) {
    const Fitted fitted = fitted_to_others(all, source);
    double mean = 0;
    for (const PublishedStep& step : all.steps) {
      if (step.source != source) continue;
      of_source.push_back(std::abs(error_of(all, step, fitted)));
      mean += of_source.back();
      worst = std::max(worst, of_source.back());
    }
    sum += mean;
    std::cout << fmt::format("| {} | {} | {:.1f} % | {:.0f}, {:.0f} | {} | {}, {} | {} |\n", source,
                             of_source.size(), 100 * mean / static_cast<double>(of_source.size()),
                             fitted.h100 / 1e12, fitted.a100 / 1e12, fitted.half, fitted.library,
                             fitted.eager, fitted.attention);
  }
  std::cout << fmt::format("each source left out of the fit: mean error {:.1f} %, worst {:.1f} %\n",
                           100 * sum / static_cast<double>(all.steps.size()), 100 * worst);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: plan_published FILE.svg\n";
    return 2;
  }
  const Chart::Axis seconds = {.low = kLow,
                               .high = kHigh * kEdge,
                               .logarithmic = true,
                               .marks = {4, 5, 7, 10, 15, 20, 30, 40}};
  std::vector<Predicted> all;
  Chart chart{
      .title = "A step of 2^24 tokens: predicted against published",
      .x = seconds,
      .y = seconds,
      .lines = {line(1, "#888888", false, "equal"), line(1.1, "#888888", true, "10 % more or less"),
                line(1 / 1.1, "#888888", true, "")}};
  chart.x.title = "published, s";
  chart.y.title = "predicted, s";
  const auto add = [&](const char* name, const std::vector<PublishedRun>& runs, const char* color,
                       bool named) {
    if (*name) chart.lines.push_back({.color = color, .name = name});
    for (const Predicted& one : leave_one_out(runs)) {
      std::cout << table_row(one) << '\n';
      all.push_back(one);
      chart.points.push_back({one.run.seconds, one.time.step_s, color,
                              named ? one.run.machine + ' ' + one.run.model : ""});
    }
  };
  add("weak scaling", weak_scaling(), "#1f77b4", true);
  add("overlap", overlap_steps(), "#d62728", false);
  add("gains", gains_5b(), "#2ca02c", false);
  add("", gains_80b(), "#2ca02c", false);
  const Errors errors = errors_of(all);
  std::cout << fmt::format("left out of the fit: mean error {:.1f} %, worst {:.1f} %\n",
                           100 * errors.mean, 100 * errors.worst);
  for (const char* const machine : {"frontier", "perlmutter", "alps"}) {
    const Machine fitted = fitted_without({.machine = machine});
    std::cout << fmt::format("{}: jitter_s = {:.2g}, inside_share = {:.2f}, products {:.3g}\n",
                             machine, fitted.jitter_s, fitted.inside_share,
                             fitted.bf16.flops_per_s);
  }
  std::ofstream(arguments[1]) << to_svg(chart);
  leave_sources_out();
}
