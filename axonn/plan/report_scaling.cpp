// Plans for several numbers of devices: a table and a chart.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/base/chart.h"
#include "axonn/base/log.h"
#include "axonn/plan/report.h"

namespace axonn {

namespace {

constexpr const char* kPlanned = "#2171b5";
constexpr const char* kIdeal = "#969696";

double rate_of(const PlanReport& r) {
  return static_cast<double>(r.batch_tokens()) / r.result.plans.front().time.step_s;
}

/// Tokens per second and device, relative to the first number of devices that fits.
double efficiency(const PlanReport& first, const PlanReport& r) {
  return rate_of(r) / r.options.devices / (rate_of(first) / first.options.devices);
}

std::vector<PlanReport> those_that_fit(const std::vector<PlanReport>& reports) {
  std::vector<PlanReport> fit;
  for (const PlanReport& report : reports)
    if (!report.result.plans.empty()) fit.push_back(report);
  return fit;
}

}  // namespace

std::string scaling_text(ScalingKind kind, const std::vector<PlanReport>& reports) {
  const auto fit = those_that_fit(reports);
  std::string text = fmt::format("{} scaling, the best plan for each number of devices\n\n",
                                 kScalingKinds[static_cast<int>(kind)]);
  text += fmt::format("{:>8} {:<16} {:>9} {:>5} {:>9} {:>8} {:>8} {:>10} {:>13} {:>9} {:>6}\n",
                      "devices", "x,y,z,data", "sequences", "micro", "recompute", "step s",
                      "exposed", "efficiency", "tokens/s", "Pflop/s", "% peak");
  for (const PlanReport& r : reports) {
    text += fmt::format("{:>8} ", format_count(r.options.devices));
    if (r.result.plans.empty()) {
      text += "does not fit\n";
      continue;
    }
    const Plan& p = r.result.plans.front();
    const PlanFlops flops = flops_of(r, p);
    text +=
        fmt::format("{:<16} {:>9} {:>5} {:>9} {:>8.3f} {:>8.3f} {:>8.1f} % {:>13} {:>9.2f} {:>6}\n",
                    to_string(p.grid), r.config.training.global_batch, p.micro_batch,
                    kRecomputeModes[static_cast<int>(p.recompute)], p.time.step_s,
                    p.time.exposed_s(), 100 * efficiency(fit.front(), r),
                    format_count(std::llround(rate_of(r))), flops.model * 1e-15,
                    flops.percent_of_peak > 0 ? fmt::format("{:.1f}", flops.percent_of_peak) : "-");
  }
  return text + "Pflop/s and % of the advertised bf16 peak count model flops.\n";
}

std::string scaling_svg(ScalingKind kind, const std::vector<PlanReport>& reports) {
  const auto fit = those_that_fit(reports);
  Chart chart{.title = {},
              .x = {.title = "devices", .logarithmic = true},
              .y = {.title = "tokens per second, all devices", .logarithmic = true}};
  if (fit.empty()) return to_svg(chart);
  const PlanReport& first = fit.front();
  chart.title = fmt::format("{} scaling, planned: {} on {}", kScalingKinds[static_cast<int>(kind)],
                            first.model, first.machine.name);
  Chart::Line ideal{.color = kIdeal, .dashed = true, .name = "ideal"},
      planned{.color = kPlanned, .name = "best plan for each number"};
  double low = INFINITY, high = 0;
  for (const PlanReport& r : fit) {
    const double devices = r.options.devices, rate = rate_of(r),
                 perfect = rate_of(first) / first.options.devices * devices;
    planned.points.emplace_back(devices, rate);
    ideal.points.emplace_back(devices, perfect);
    low = std::min({low, rate, perfect});
    high = std::max({high, rate, perfect});
    chart.x.marks.push_back(devices);
    chart.points.push_back(
        {.x = devices,
         .y = rate,
         .color = kPlanned,
         .label = fmt::format("{} ({:.0f} %)", to_string(r.result.plans.front().grid),
                              100 * efficiency(first, r))});
  }
  const auto [fewest, most] = std::ranges::minmax(chart.x.marks);
  const double room = std::pow(10, 0.06 + 0.05 * std::log10(most / fewest));
  chart.x.low = fewest / room;
  chart.x.high = most * room;
  chart.y.low = low * 0.97;
  chart.y.high = high * 1.03;
  chart.y = widened(chart.y);
  chart.lines = {ideal, planned};
  return to_svg(chart);
}

}  // namespace axonn
