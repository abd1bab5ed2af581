// plan_scaling FOLDER: what plans predict beyond the machines at hand. Prints the tables of
// docs/scaling.md, and writes its pictures into the folder: weak-scaling.svg, strong-scaling.svg.
//
// Of a step of 2^24 tokens on Perlmutter, Frontier and Alps: the authors' program of arXiv
// 2502.08145, published and predicted; this program on its own best grid, and on the one that the
// authors' program is predicted to take; and what each overlap saves.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "axonn/foundation/drawing/chart.h"
#include "axonn/plan/planner/report.h"
#include "axonn/run/config/resolve.h"

#include "tests/plan/planner/published.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr std::int64_t kSequences = 8192, kSeqLen = 2048;

struct Place {
  const char* machine;
  int devices;
  const char* model;
  const char* color;
};

constexpr const char *kGreen = "#2ca02c", *kRed = "#d62728", *kBlue = "#1f77b4";

const std::vector<Place> kWeak = {
    {"perlmutter", 512, "5B", kGreen},   {"perlmutter", 1024, "10B", kGreen},
    {"perlmutter", 2048, "20B", kGreen}, {"perlmutter", 4096, "40B", kGreen},
    {"frontier", 512, "5B", kRed},       {"frontier", 1024, "10B", kRed},
    {"frontier", 2048, "20B", kRed},     {"frontier", 4096, "40B", kRed},
    {"frontier", 8192, "80B", kRed},     {"frontier", 16384, "160B", kRed},
    {"frontier", 32768, "320B", kRed},   {"alps", 1024, "10B", kBlue},
    {"alps", 2048, "20B", kBlue},        {"alps", 4096, "40B", kBlue},
    {"alps", 6144, "60B", kBlue}};

PublishedRun run_of(const Place& place) {
  for (const PublishedRun& run : weak_scaling())
    if (run.machine == place.machine && run.devices == place.devices && run.model == place.model)
      return run;
  return {place.machine, place.devices, place.model, "weak scaling"};
}

/// This program's plans, with free micro-batch and recomputation; the grid may be given.
PlanReport plans_of(const Place& place, const GridShape& fixed) {
  std::string name = concat("gpt-", place.model);
  std::ranges::transform(name, name.begin(), [](char c) { return std::tolower(c); });
  Config config;
  config.model = published_config(run_of(place), {}).model;
  config.training = {.steps = 1, .seq_len = kSeqLen, .global_batch = kSequences};
  config.training.dtype = DType::bf16;
  config.data.synthetic = 1;  // without effect on a plan, but a run needs data and a rate
  config.optimizer.lr = 1;
  const Machine machine = read_machine(place.machine);
  return make_plans(
      {.model = name,
       .run = prepared(config).with([&](Config& one) { one.parallelism.device = machine.backend; }),
       .machine = machine,
       .options = {.devices = place.devices, .fixed = fixed},
       .result = {}});
}

std::string range(double seconds, double error) {
  return fmt::format("{:.1f} ({:.1f} to {:.1f})", seconds, seconds * (1 - error),
                     seconds * (1 + error));
}

Chart chart_of(const char* title) {
  return {.title = title,
          .x = {.title = "devices",
                .low = 400,
                .high = 40000,
                .logarithmic = true,
                .marks = {512, 1024, 2048, 4096, 8192, 16384, 32768}},
          .y = {.title = "s", .low = 0, .high = 40}};
}

void weak(const std::string& folder) {
  std::cout << "| machine | devices | model | published, s | authors' program, s | grid | this "
               "program, s | grid | micro-batch, recomputed | exposed, s | % of peak | on the "
               "authors' grid, s |\n"
               "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  Chart chart = chart_of("Weak scaling, a step of 2^24 tokens");
  std::map<std::string, std::pair<Chart::Line, Chart::Line>> lines;
  std::string savings_text;
  for (const Place& place : kWeak) {
    const PublishedRun run = run_of(place);
    const Predicted theirs = predict(run);
    const double their_error = read_machine(concat(place.machine, "-paper")).error;
    const PlanReport ours = plans_of(place, {.x = 0, .y = 0, .z = 0, .data = 0});
    const Plan& best = ours.result.plans.front();
    const PlanReport on_theirs = plans_of(place, theirs.grid);
    const bool fits = !on_theirs.result.plans.empty();
    std::cout << fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {}, {} | {:.1f} | {:.1f} | {} |\n",
        place.machine, place.devices, place.model,
        run.seconds > 0 ? fmt::format("{:.2f}", run.seconds) : "",
        range(theirs.time.step_s, their_error), to_string(theirs.grid),
        range(best.time.step_s, ours.machine.error), to_string(best.grid), best.micro_batch,
        best.recompute == RecomputeMode::none   ? "no"
        : best.recompute == RecomputeMode::full ? "all"
                                                : "some",
        best.time.exposed_s(), flops_of(ours, best).percent_of_peak,
        fits ? fmt::format("{:.1f}", on_theirs.result.plans.front().time.step_s) : "does not fit");
    savings_text += fmt::format("| {} | {} | {} | {:.1f} |", place.machine, place.devices,
                                place.model, best.time.step_s);
    for (const char* const setting : {"overlap_input_gradients", "overlap_weight_gradients",
                                      "overlap_weights", "overlap_data", "collectives"}) {
      const auto found = std::ranges::find(ours.savings, setting, &Saving::setting);
      savings_text += found == ours.savings.end() ? " |" : fmt::format(" {:.2f} |", found->seconds);
    }
    savings_text += '\n';

    auto& [predicted, own] = lines[place.machine];
    predicted.color = own.color = place.color;
    predicted.dashed = true;
    own.name = place.machine;
    predicted.points.emplace_back(place.devices, theirs.time.step_s);
    own.points.emplace_back(place.devices, best.time.step_s);
    if (run.seconds > 0)
      chart.points.push_back({static_cast<double>(place.devices), run.seconds, place.color, ""});
  }
  for (const auto& [machine, both] : lines) {
    chart.lines.push_back(both.first);
    chart.lines.push_back(both.second);
  }
  chart.lines.push_back({.color = "#888888", .dashed = true, .name = "authors' program"});
  chart.lines.push_back({.color = "#888888", .name = "this program"});
  std::ofstream(folder + "/weak-scaling.svg") << to_svg(chart);
  std::cout << "\n| machine | devices | model | step, s | input gradients | weight gradients | "
               "weights | data | collectives |\n| --- | --- | --- | --- | --- | --- | --- | --- | "
               "--- |\n"
            << savings_text;
}

void strong(const std::string& folder) {
  std::cout << "\n| devices | grid | step, s | tokens/s | efficiency | % of peak |\n"
               "| --- | --- | --- | --- | --- | --- |\n";
  Chart chart = chart_of("Strong scaling of 80B on Frontier, a step of 2^24 tokens");
  Chart::Line line{.color = kRed, .name = "this program, predicted"},
      ideal{.color = "#888888", .dashed = true, .name = "ideal"};
  double first = 0;
  for (int devices = 512; devices <= 32768; devices *= 2) {
    const PlanReport r =
        plans_of({"frontier", devices, "80B", kRed}, {.x = 0, .y = 0, .z = 0, .data = 0});
    const Plan& best = r.result.plans.front();
    const double device_s = best.time.step_s * devices;
    if (first == 0) first = device_s;
    std::cout << fmt::format("| {} | {} | {} | {:.0f} | {:.0f} % | {:.1f} |\n", devices,
                             to_string(best.grid), range(best.time.step_s, r.machine.error),
                             kSequences * kSeqLen / best.time.step_s, 100 * first / device_s,
                             flops_of(r, best).percent_of_peak);
    line.points.emplace_back(devices, best.time.step_s);
    ideal.points.emplace_back(devices, first / devices);
  }
  chart.lines = {line, ideal};
  chart.y = {.title = "s", .low = 2, .high = 300, .logarithmic = true};
  std::ofstream(folder + "/strong-scaling.svg") << to_svg(chart);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: plan_scaling FOLDER\n";
    return 2;
  }
  weak(arguments[1]);
  strong(arguments[1]);
}
