#include "axonn/plan/planner/report.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/counts.h"
#include "axonn/plan/measure/dry_rollouts.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

namespace {

using Part = std::pair<double, std::string>;  // seconds, name

std::string_view name_of(RecomputeMode mode) { return kRecomputeModes[static_cast<int>(mode)]; }

/// The plan's recomputation: "light", or "full:12" if the first 12 blocks take the next mode, full;
/// "values:12" if they compute other values again than the rest.
std::string recompute_text(const Plan& plan) {
  const std::int64_t blocks = plan.recompute_blocks.value_or(0);
  if (blocks == 0 || plan.recompute == RecomputeMode::full)
    return std::string(name_of(plan.recompute));
  if (plan.recompute == RecomputeMode::values) return fmt::format("values:{}", blocks);
  return fmt::format("{}:{}", kRecomputeModes[static_cast<int>(plan.recompute) + 1], blocks);
}

/// The unit of a report's times: seconds, or milliseconds if the best step takes less than a
/// second.
struct TimeUnit {
  double each;  // units per second
  const char* name;
};

TimeUnit unit_of(const Plan& best) {
  return best.time.step_s < 1 ? TimeUnit{1e3, "ms"} : TimeUnit{1, "s"};
}

/// One decimal, or "-" if the peak is unknown.
std::string percent_of_peak(const PlanFlops& flops) {
  return flops.percent_of_peak > 0 ? fmt::format("{:.1f}", flops.percent_of_peak) : "-";
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes * 1e-9); }

/// Three significant digits, or all before the point.
std::string three_digits(double value) {
  if (value <= 0) return "0";
  const int decimals = 2 - static_cast<int>(std::floor(std::log10(value)));
  return fmt::format("{:.{}f}", value, std::clamp(decimals, 0, 4));
}

/// "20 % less to 70 % more".
std::string range_text(const Machine& machine) {
  const auto [least, most] = machine.range_of(100);
  return fmt::format("{:.0f} % less to {:.0f} % more", 100 - least, most - 100);
}

/// "axonn; a step is expected to take 20 % less to 70 % more".
std::string program_text(const Machine& machine) {
  return (machine.program.name.empty() ? "axonn" : machine.program.name) +
         (machine.error > 0 ? "; a step is expected to take " + range_text(machine)
                            : "; how far times may be off is unknown");
}

/// "NVIDIA's data sheets; nothing is fitted".
std::string figures_text(const Machine& m) {
  const std::string source = m.source.empty() ? "of unknown origin" : m.source;
  if (m.fitted.empty()) return source;
  return source + (m.fitted == "nothing" ? "; nothing is fitted" : "; fitted: " + m.fitted);
}

/// "80.0 GB, of which plans may use 76.0 GB: the rest is kept for ...".
std::string memory_text(const Machine& m) {
  if (m.reserve_bytes == 0) return gigabytes(m.memory_bytes);
  return fmt::format(
      "{}, of which plans may use {}: the rest is kept for driver, communicators and libraries",
      gigabytes(m.memory_bytes), gigabytes(m.usable_bytes()));
}

std::string question(const PlanReport& r) {
  const Machine& m = r.machine;
  return fmt::format(
      "model     {}: {}, {}\n"
      "machine   {}: {} devices ({}), {} per node\n"
      "figures   {}\n"
      "program   {}\n"
      "memory    per device {}\n"
      "step      {} sequences of {} tokens, {} tokens\n"
      "{}"
      "search    strategy {}: {} grids, {}{} can cut model and batch, {} fit; {:.2f} s\n",
      r.model, parameters_text(r.run->model), name_of(r.run->training.dtype), m.name,
      format_count(r.options.devices), m.device, m.devices_per_node, figures_text(m),
      program_text(m), memory_text(m), format_count(r.run->training.global_batch),
      format_count(r.run->training.seq_len), format_count(r.batch_tokens()),
      r.assumed.empty() ? "" : fmt::format("assumed   {}\n", fmt::join(r.assumed, ", ")),
      kStrategies[static_cast<int>(r.options.strategy)], r.result.grids,
      r.result.ruled_out > 0 ? fmt::format("{} too slow, of the others ", r.result.ruled_out) : "",
      r.result.cut, r.result.fit, r.search_s);
}

std::string table(const PlanReport& r) {
  const TimeUnit unit = unit_of(r.result.plans.front());
  std::size_t width = 16;
  for (const Plan& p : r.result.plans) width = std::max(width, with_factors(p.grid).size());
  std::string text = fmt::format(
      "\n{:>2}  {:<{}} {:>5} {:>9} {:>8} {:>8} {:>8} {:>9} {:>12} {:>9} {:>6}  {}\n", "",
      "x,y,z,data", width, "micro", "recompute", fmt::format("step {}", unit.name), "compute",
      "exposed", "memory", "tok/s/device", "Pflop/s", "% peak", "behind the first");
  for (std::size_t i = 0; i < r.result.plans.size(); ++i) {
    const Plan& p = r.result.plans[i];
    const PlanFlops flops = flops_of(r, p);
    text += fmt::format(
        "{:>2}  {:<{}} {:>5} {:>9} {:>8} {:>8} {:>8} {:>9} {:>12} {:>9} {:>6}{}\n", i + 1,
        with_factors(p.grid), width, p.micro_batch, recompute_text(p),
        three_digits(p.time.step_s * unit.each), three_digits(p.time.compute_s * unit.each),
        three_digits(p.time.exposed_s() * unit.each),
        gigabytes(static_cast<double>(p.memory_bytes)),
        format_count(std::llround(r.tokens_per_s_per_device(p))), three_digits(flops.model * 1e-15),
        percent_of_peak(flops), i == 0 ? "" : "  " + why_behind(r.result.plans.front(), p));
  }
  if (r.options.cost == CostModel::paper)
    text +=
        "Seconds are those of the paper's communication model: they rank grids, but do not predict "
        "a step; Pflop/s and % have no meaning here.\n";
  return text +
         "tok/s/device: tokens per second on each device. Pflop/s and % of the advertised bf16 "
         "peak "
         "count\nmodel flops (convention model). memory: the peak of a rank's arena.\n";
}

/// Lines of the parts of a step, the largest first, each with its share of the step.
std::string parts(const std::map<std::string, double>& of, const std::string& prefix, double step_s,
                  const TimeUnit& unit) {
  std::vector<Part> sorted;
  for (const auto& [name, seconds] : of) sorted.emplace_back(seconds, name);
  std::ranges::sort(sorted, std::greater{});
  std::string text;
  constexpr double kWorthALine = 0.0005;  // of the step; a smaller part would be shown as 0.0 %
  for (const auto& [seconds, name] : sorted)
    if (seconds >= kWorthALine * step_s)
      text +=
          fmt::format("  {:>9} {} {:>5.1f} %  {}{}\n", three_digits(seconds * unit.each), unit.name,
                      100 * seconds / step_s, name == kLateRanks ? "" : prefix, name);
  return text;
}

/// The values that the blocks of a plan compute again, and the key that makes a run do so.
std::string recomputation(const PlanReport& r, const Plan& plan) {
  if (plan.recompute == RecomputeMode::none) return "";
  std::string text = "Recomputation: " + describe_recomputation(planned(r.run, plan).config());
  const std::int64_t budget = r.run->activation_checkpoint.budget;
  const double bytes = budget > 0 ? static_cast<double>(budget) : r.machine.usable_bytes();
  if (plan.recompute_blocks)
    text += fmt::format("; in a run, set activation_checkpoint.budget = \"{:.1f}GB\"",
                        std::floor(bytes / 1e8) / 10);
  return text + '\n';
}

/// The key with which the plan keeps gathered weights; "" if none are gathered or kept.
std::string kept_weights(const PlanReport& r, const Plan& plan) {
  const KeepWeights keep = planned(r.run, plan)->parallelism.keep_weights;
  if (plan.grid.z == 1 || keep == KeepWeights::none) return "";
  return fmt::format(
      "Weights gathered once a {}: in a run, set parallelism.keep_weights = \"{}\"\n",
      keep == KeepWeights::step ? "step" : "micro-batch", name_of(keep));
}

/// The memory of answers that the run writes, and the key that says when weights are gathered; ""
/// if it writes none.
std::string rollouts(const PlanReport& r, const Plan& plan) {
  if (plan.rollout_bytes == 0) return "";
  const bool holds = planned(r.run, plan)->rl.hold_weights;
  return fmt::format("Answers: {} while they are written{}\n",
                     gigabytes(static_cast<double>(plan.rollout_bytes)),
                     plan.grid.z == 1 ? ""
                     : holds          ? ", with weights gathered over z once"
                                      : ", with weights gathered at each use: in a run, set "
                                        "rl.hold_weights = false");
}

/// Lines of the parts of the best plan's memory, the largest first, without those below 0.1 %.
std::string memory_parts(const PlanReport& r) {
  const auto peak = static_cast<double>(r.result.plans.front().memory_bytes);
  std::vector<std::pair<std::int64_t, MemoryUse>> sorted;
  for (int i = 0; i < kMemoryUses; ++i)
    if (static_cast<double>(r.memory[i]) >= 0.001 * peak)
      sorted.emplace_back(r.memory[i], static_cast<MemoryUse>(i));
  std::ranges::sort(sorted, std::greater{}, &std::pair<std::int64_t, MemoryUse>::first);
  std::string text =
      fmt::format("Memory of a device: {} of {} ({:.0f} %)\n", gigabytes(peak),
                  gigabytes(r.machine.usable_bytes()), 100 * peak / r.machine.usable_bytes());
  for (const auto& [bytes, use] : sorted)
    text += fmt::format("  {:>9}  {:>6.1f} %  {}\n", gigabytes(static_cast<double>(bytes)),
                        100 * static_cast<double>(bytes) / peak, name_of(use));
  return text;
}

std::string flops_text(const PlanFlops& flops) {
  std::string text =
      fmt::format("Pflop/s: {} model, {} hardware", three_digits(flops.model * 1e-15),
                  three_digits(flops.hardware * 1e-15));
  if (!flops.narayanan)
    return text + " (Narayanan's formula, the AxoNN paper's, is for dense GPT and Llama models)\n";
  text += fmt::format(", {} Narayanan (the AxoNN paper's", three_digits(*flops.narayanan * 1e-15));
  if (flops.narayanan_percent_of_peak > 0)
    text += fmt::format(": {:.1f} % of the advertised peak", flops.narayanan_percent_of_peak);
  return text + ")\n";
}

std::string explanation(const PlanReport& r) {
  const Plan& best = r.result.plans.front();
  const PlanFlops flops = flops_of(r, best);
  const StepTime& time = best.time;
  const TimeUnit unit = unit_of(best);
  const std::int64_t micros = best.micro_batch_count(r.run->training.global_batch),
                     padding = padding_sequences(planned(r.run, best).config());
  std::string text = fmt::format(
      "\nTime of the best plan ({} micro-batch{} of {} sequence{} on each of {} (z, data) "
      "{}{}):\n",
      micros, micros == 1 ? "" : "es", best.micro_batch, best.micro_batch == 1 ? "" : "s",
      batch_coordinates(best.grid), best.grid.context > 1 ? "coordinates / context" : "coordinates",
      padding == 0 ? "" : fmt::format("; in all {} are padding", padding));
  if (r.machine.error > 0) {
    const auto [least, most] = r.machine.range_of(time.step_s);
    const double rate = r.tokens_per_s_per_device(best) * time.step_s;
    text += fmt::format(
        "  {:>9} {}          a step, expected between {} and {} {}: {} to {} tokens/s a device\n",
        three_digits(time.step_s * unit.each), unit.name, three_digits(least * unit.each),
        three_digits(most * unit.each), unit.name, format_count(std::llround(rate / most)),
        format_count(std::llround(rate / least)));
  }
  text += parts(time.compute_by, "", time.step_s, unit);
  text += parts(time.exposed_by, "exposed ", time.step_s, unit);
  text += recomputation(r, best) + kept_weights(r, best) + rollouts(r, best) + memory_parts(r) +
          flops_text(flops);
  if (!r.savings.empty()) text += "Time saved by overlap, and saved or added by other settings:\n";
  for (const Saving& saving : r.savings)
    text += fmt::format("  {:>+9.3f} {} {:>5.1f} %  {} parallelism.{}\n",
                        -saving.seconds * unit.each, unit.name, -100 * saving.seconds / time.step_s,
                        saving.set ? "by" : "with", saving.setting);
  if (r.tokens > 0)
    text += fmt::format("{} tokens: {:.1f} days, {} device hours\n", format_count(r.tokens),
                        r.training_days(best), format_count(std::llround(r.device_hours(best))));
  return text;
}

/// The text if nothing fits: the least memory that a grid needs, and a number of devices that fits.
std::string remedy(const PlanReport& r) {
  std::string text = fmt::format("\nDoes not fit on {} devices", format_count(r.options.devices));
  if (const auto& least = r.result.smallest)
    text += fmt::format(
        ": grid {} needs the least, {} per rank with micro-batches of {} and full recomputation, "
        "but a device has {}",
        with_factors(least->grid), gigabytes(static_cast<double>(least->memory_bytes)),
        least->micro_batch, memory_text(r.machine));
  text += ".\n";
  return text + (r.devices_that_fit > 0
                     ? fmt::format("It fits on {} devices.\n", format_count(r.devices_that_fit))
                     : "No larger number of devices that was tried fits this batch either.\n");
}

double rate_of(const PlanReport& r) { return r.tokens_per_s(r.result.plans.front()); }

double rate_per_device(const PlanReport& r) {
  return r.tokens_per_s_per_device(r.result.plans.front());
}

/// Tokens per second and device, relative to the first number of devices that fits.
double efficiency(const PlanReport& first, const PlanReport& r) {
  return rate_per_device(r) / rate_per_device(first);
}

bool fits(const PlanReport& r) { return !r.result.plans.empty(); }

using Json = nlohmann::ordered_json;

Json stated(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json known(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json json_of(const GridShape& grid) {
  Json json{{"x", grid.x}, {"y", grid.y}, {"z", grid.z}, {"data", grid.data}};
  if (grid.context > 1) json["context"] = grid.context;
  if (grid.experts > 1) json["experts"] = grid.experts;
  return json;
}

Json json_of(const PlanReport& r, const Plan& plan) {
  const PlanFlops flops = flops_of(r, plan);
  Json json = {
      {"grid", json_of(plan.grid)},
      {"predicted_s", plan.time.step_s},
      {"predicted_range_s", r.machine.range_of(plan.time.step_s)},
      {"compute_s", plan.time.compute_s},
      {"exposed_comm_s", plan.time.exposed_s()},
      {"memory_bytes", plan.memory_bytes},
      {"pflops", flops.model * 1e-15},
      {"percent_of_peak", known(flops.percent_of_peak)},
      {"micro_batch", plan.micro_batch},
      {"activation_checkpoint", name_of(plan.recompute)},
      {"activation_checkpoint_blocks", plan.recompute_blocks.value_or(0)},
      {"activation_checkpoint_values", plan.recompute_values},
      {"activation_checkpoint_first_values", plan.recompute_first_values},
      {"keep_weights", name_of(planned(r.run, plan)->parallelism.keep_weights)},
      {"micro_batches", plan.micro_batch_count(r.run->training.global_batch)},
      {"tokens_per_s", r.tokens_per_s(plan)},
      {"tokens_per_s_per_device", r.tokens_per_s_per_device(plan)},
      {"hardware_pflops", flops.hardware * 1e-15},
      {"narayanan_pflops", known(flops.narayanan.value_or(0) * 1e-15)},
      {"narayanan_percent_of_peak", known(flops.narayanan_percent_of_peak)},
      {"compute_s_by", plan.time.compute_by},
      {"exposed_comm_s_by", plan.time.exposed_by},
      {"comm_s_by", plan.time.comm_by},
      {"behind", why_behind(r.result.plans.front(), plan)},
  };
  if (plan.rollout_bytes > 0) {
    json["rollout_bytes"] = plan.rollout_bytes;
    json["hold_weights"] = planned(r.run, plan)->rl.hold_weights;
  }
  if (r.tokens > 0) {
    json["days"] = r.training_days(plan);
    json["device_hours"] = r.device_hours(plan);
  }
  return json;
}

Json all_of(const PlanReport& r) {
  Json json = {{"plans", Json::array()},
               {"flops_convention", "model"},
               {"model", r.model},
               {"parameters", parameter_count(r.run->model)},
               {"active_parameters", active_parameter_count(r.run->model)},
               {"machine", r.machine.name},
               {"program", r.machine.program.name.empty() ? "axonn" : r.machine.program.name},
               {"error", known(r.machine.error)},
               {"slower", known(r.machine.slower > 0 ? r.machine.slower : r.machine.error)},
               {"figures", {{"source", r.machine.source}, {"fitted", stated(r.machine.fitted)}}},
               {"assumed", r.assumed},
               {"devices", r.options.devices},
               {"strategy", kStrategies[static_cast<int>(r.options.strategy)]},
               {"cost", kCostModels[static_cast<int>(r.options.cost)]},
               {"dtype", name_of(r.run->training.dtype)},
               {"batch_tokens", r.batch_tokens()},
               {"seq_len", r.run->training.seq_len},
               {"device_memory_bytes", r.machine.memory_bytes},
               {"reserve_bytes", r.machine.reserve_bytes},
               {"search",
                {{"seconds", r.search_s},
                 {"grids", r.result.grids},
                 {"too_slow", r.result.ruled_out},
                 {"can_cut", r.result.cut},
                 {"fit", r.result.fit},
                 {"simulated", r.result.simulated}}}};
  for (const Plan& plan : r.result.plans) json["plans"].push_back(json_of(r, plan));
  for (int i = 0; i < kMemoryUses; ++i)
    if (r.memory[i] > 0) json["memory_bytes_by"][name_of(static_cast<MemoryUse>(i))] = r.memory[i];
  for (const Saving& saving : r.savings)
    json[saving.set ? "saves_s" : "would_save_s"][saving.setting] = saving.seconds;
  if (const auto& least = r.result.smallest) {
    json["least_memory"] = {{"grid", json_of(least->grid)}, {"memory_bytes", least->memory_bytes}};
    json["devices_that_fit"] = r.devices_that_fit > 0 ? Json(r.devices_that_fit) : Json(nullptr);
  }
  return json;
}

}  // namespace

std::vector<Saving> savings(const PreparedRun& run, const Machine& machine, const Plan& plan) {
  const PreparedRun base = planned(run, plan);
  const ParallelismConfig& p = base->parallelism;
  std::vector<Saving> found;
  const auto add = [&](const std::string& name, bool set,
                       const std::function<void(ParallelismConfig&)>& change) {
    const PreparedRun other = base.with([&](Config& config) { change(config.parallelism); });
    const double seconds = predict(other, machine).time.step_s - plan.time.step_s;
    found.push_back({name, set ? seconds : -seconds, set});
  };
  const auto without = [&](const char* name, bool applies, bool Overlap::*flag) {
    if (applies && p.overlap.*flag)
      add(name, true, [&](ParallelismConfig& other) { other.overlap.*flag = false; });
  };
  const GridShape& grid = plan.grid;
  without("overlap_input_gradients", grid.x > 1 || grid.y > 1, &Overlap::input_gradients);
  without("overlap_weight_gradients", grid.z > 1, &Overlap::weight_gradients);
  without("overlap_weights", grid.z > 1, &Overlap::weights);
  without("overlap_data", grid.data > 1, &Overlap::data);
  without("overlap_context", p.context > 1, &Overlap::context);
  if (grid.z > 1 && p.keep_weights != KeepWeights::none)
    add(fmt::format("keep_weights = {}", name_of(p.keep_weights)), true,
        [](ParallelismConfig& other) { other.keep_weights = KeepWeights::none; });
  if (p.collectives != CollectivesKind::flat && machine.program.name.empty() &&
      grid.ranks() > machine.devices_per_node && machine.devices_per_node > 1)
    add("collectives", true,
        [](ParallelismConfig& other) { other.collectives = CollectivesKind::flat; });
  if (p.chunks > 1)
    add(fmt::format("chunks = {}", p.chunks), true,
        [](ParallelismConfig& other) { other.chunks = 1; });
  else if ((grid.x > 1 || grid.y > 1) && plan.micro_batch % 2 == 0)
    add("chunks = 2", false, [](ParallelismConfig& other) { other.chunks = 2; });
  return found;
}

std::string why_behind(const Plan& best, const Plan& other) {
  std::vector<Part> parts;
  const auto add = [&](const auto& mine, const auto& others, const char* prefix,
                       const char* suffix) {
    for (const auto& [name, seconds] : others) {
      const auto found = mine.find(name);
      parts.emplace_back(seconds - (found == mine.end() ? 0 : found->second),
                         (name == kLateRanks ? "" : prefix) + name + suffix);
    }
  };
  const bool again =
      other.recompute == RecomputeMode::full && best.recompute == RecomputeMode::none;
  add(best.time.compute_by, other.time.compute_by, "", again ? " (recomputed)" : "");
  add(best.time.exposed_by, other.time.exposed_by, "exposed ", "");
  std::ranges::sort(parts, std::greater{});
  const double behind = other.time.step_s - best.time.step_s;
  const TimeUnit unit = unit_of(best);
  std::string text = fmt::format("{:+.1f} %", 100 * behind / best.time.step_s);
  constexpr double kWorthSaying = 0.3;  // of the largest part
  constexpr std::size_t kMost = 2;
  for (std::size_t i = 0; i < std::min(kMost, parts.size()); ++i) {
    if (parts[i].first <= 0 || parts[i].first < kWorthSaying * parts.front().first) break;
    text += fmt::format("{} {:.3g} {} more of {}", i == 0 ? ":" : ",", parts[i].first * unit.each,
                        unit.name, parts[i].second);
  }
  return text;
}

PlanReport make_plans(PlanReport asked) {
  const double begin = now_seconds();
  asked.result = search(asked.run, asked.machine, asked.options);
  asked.search_s = now_seconds() - begin;
  const auto& plans = asked.result.plans;
  if (plans.empty()) {
    asked.devices_that_fit = devices_that_fit(asked.run, asked.machine, asked.options);
    return asked;
  }
  const PreparedRun best = planned(asked.run, plans.front());
  asked.memory = dry_step(best, 0).memory.peak_by;
  const std::int64_t of_rollouts = plans.front().rollout_bytes;
  if (of_rollouts > 0 && of_rollouts == plans.front().memory_bytes)
    asked.memory = dry_rollouts(best, 0).memory.peak_by;
  if (asked.options.cost == CostModel::simulated)
    asked.savings = savings(asked.run, asked.machine, plans.front());
  return asked;
}

PlanFlops flops_of(const PlanReport& r, const Plan& plan) {
  const StepFlops step =
      step_flops(r.run->model, r.run->training.global_batch, r.run->training.seq_len,
                 fully_recomputed(planned(r.run, plan).config()));
  const double seconds = plan.time.step_s, devices = r.options.devices;
  const double peak =
      is_half(r.run->training.dtype) ? r.machine.advertised_flops_per_s * devices : 0;
  PlanFlops flops{.model = step.model / seconds, .hardware = step.hardware / seconds};
  if (step.narayanan) flops.narayanan = *step.narayanan / seconds;
  if (peak > 0) {
    flops.percent_of_peak = 100 * flops.model / peak;
    flops.narayanan_percent_of_peak = 100 * flops.narayanan.value_or(0) / peak;
  }
  return flops;
}

std::string to_text(const PlanReport& report) {
  return question(report) + (fits(report) ? table(report) + explanation(report) : remedy(report));
}

std::string scaling_text(ScalingKind kind, const std::vector<PlanReport>& reports) {
  const auto first = std::ranges::find_if(reports, fits);
  std::string text =
      fmt::format("{} scaling, the best plan for each number of devices\n\n", name_of(kind));
  text +=
      fmt::format("{:>8} {:<16} {:>9} {:>5} {:>9} {:>8} {:>8} {:>10} {:>13} {:>12} {:>9} {:>6}\n",
                  "devices", "x,y,z,data", "sequences", "micro", "recompute", "step s", "exposed",
                  "efficiency", "tokens/s", "tok/s/device", "Pflop/s", "% peak");
  for (const PlanReport& r : reports) {
    text += fmt::format("{:>8} ", format_count(r.options.devices));
    if (!fits(r)) {
      text += "does not fit\n";
      continue;
    }
    const Plan& p = r.result.plans.front();
    const PlanFlops flops = flops_of(r, p);
    text += fmt::format(
        "{:<16} {:>9} {:>5} {:>9} {:>8} {:>8} {:>8.1f} % {:>13} {:>12} {:>9} {:>6}\n",
        with_factors(p.grid), r.run->training.global_batch, p.micro_batch, recompute_text(p),
        three_digits(p.time.step_s), three_digits(p.time.exposed_s()), 100 * efficiency(*first, r),
        format_count(std::llround(rate_of(r))), format_count(std::llround(rate_per_device(r))),
        three_digits(flops.model * 1e-15), percent_of_peak(flops));
  }
  const PlanReport& any = reports.front();
  text += "Pflop/s and % of the advertised bf16 peak count model flops.\n";
  if (!any.assumed.empty()) text += fmt::format("assumed: {}\n", fmt::join(any.assumed, ", "));
  return text + "figures: " + figures_text(any.machine) +
         "\nprogram: " + program_text(any.machine) + '\n';
}

std::string to_json(const PlanReport& report) { return all_of(report).dump(2) + "\n"; }

std::string scaling_json(ScalingKind kind, const std::vector<PlanReport>& reports) {
  Json points = Json::array();
  for (const PlanReport& report : reports) points.push_back(all_of(report));
  return Json{{"scaling", name_of(kind)}, {"points", points}}.dump(2) + "\n";
}

std::string scaling_svg(ScalingKind kind, const std::vector<PlanReport>& reports) {
  ScalingChart chart{
      .title = {}, .counted = "devices", .best = "best plan for each number", .ideal = "ideal"};
  for (const PlanReport& r : std::views::filter(reports, fits)) {
    const PlanReport& first = *std::ranges::find_if(reports, fits);
    chart.title = fmt::format("{} scaling, planned: {} on {}", name_of(kind), first.model,
                              first.machine.name);
    chart.marks.push_back(
        {.count = r.options.devices,
         .tokens_per_s = rate_of(r),
         .ideal = rate_of(first) / first.options.devices * r.options.devices,
         .label = fmt::format("{} ({:.0f} %)", with_factors(r.result.plans.front().grid),
                              100 * efficiency(first, r))});
  }
  return to_svg(chart);
}

}  // namespace axonn
