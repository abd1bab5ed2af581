// plan_published FILE.svg: compares the planner's predictions with the measurements of arXiv
// 2502.08145, each left out of the fit of the machine's constants, and with published speeds of
// other programs. Prints the tables, and writes the picture, of docs/planning-model.md.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include <fmt/format.h>

#include "axonn/foundation/drawing/chart.h"

#include "tests/plan/planner/published.h"
#include "tests/plan/planner/published_rows.h"

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
  double mean = 0, fastest = 0, slowest = 0;
  for (const PublishedRow& row : published_rows()) {
    const PredictedRow one = predict(row);
    std::cout << table_row(one) << '\n';
    mean += std::abs(one.error()) / static_cast<double>(published_rows().size());
    fastest = std::min(fastest, row.seconds() / one.seconds - 1);
    slowest = std::max(slowest, row.seconds() / one.seconds - 1);
  }
  std::cout << fmt::format(
      "mean error {:.1f} %; published steps take {:.1f} % less to {:.1f} % more than predicted\n",
      100 * mean, -100 * fastest, 100 * slowest);
}
