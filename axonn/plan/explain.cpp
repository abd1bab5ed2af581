#include "axonn/plan/explain.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/plan/estimate.h"

namespace axonn {

namespace {

using Part = std::pair<double, std::string>;  // seconds, name

void add_differences(const std::map<std::string, double>& best,
                     const std::map<std::string, double>& other, const std::string& prefix,
                     std::vector<Part>& parts) {
  for (const auto& [name, seconds] : other) {
    const auto found = best.find(name);
    parts.emplace_back(seconds - (found == best.end() ? 0 : found->second), prefix + name);
  }
}

/// The part's name, with "(recomputed)" if that explains why `other` computes more.
std::string named(const std::string& part, const Plan& best, const Plan& other) {
  const bool again =
      other.recompute == RecomputeMode::full && best.recompute == RecomputeMode::none;
  return part + (again && !part.starts_with("exposed") ? " (recomputed)" : "");
}

}  // namespace

std::vector<Saving> savings(const Config& config, const Machine& machine, const Plan& plan) {
  const Config base = planned(config, plan);
  std::vector<Saving> found;
  const auto add = [&](const std::string& name, const Config& other, bool set) {
    const double seconds = estimate_whole_depth(other, machine).step_s - plan.time.step_s;
    found.push_back({name, set ? seconds : -seconds, set});
  };
  const auto without = [&](const char* name, bool applies, bool ParallelismConfig::*flag) {
    if (!applies || !(base.parallelism.*flag)) return;
    Config other = base;
    other.parallelism.*flag = false;
    add(name, other, true);
  };
  const GridShape& grid = plan.grid;
  using P = ParallelismConfig;
  without("overlap_input_gradients", grid.x > 1 || grid.y > 1, &P::overlap_input_gradients);
  without("overlap_weight_gradients", grid.z > 1, &P::overlap_weight_gradients);
  without("overlap_weights", grid.z > 1, &P::overlap_weights);
  without("overlap_data", grid.data > 1, &P::overlap_data);
  Config other = base;
  if (base.parallelism.chunks > 1) {
    other.parallelism.chunks = 1;
    add(fmt::format("chunks = {}", base.parallelism.chunks), other, true);
  } else if ((grid.x > 1 || grid.y > 1) && plan.micro_batch % 2 == 0) {
    other.parallelism.chunks = 2;
    add("chunks = 2", other, false);
  }
  return found;
}

std::string why_behind(const Plan& best, const Plan& other) {
  std::vector<Part> parts;
  add_differences(best.time.compute_by, other.time.compute_by, "", parts);
  add_differences(best.time.exposed_by, other.time.exposed_by, "exposed ", parts);
  std::ranges::sort(parts, std::greater{});
  const double behind = other.time.step_s - best.time.step_s;
  std::string text = fmt::format("{:+.1f} %", 100 * behind / best.time.step_s);
  constexpr double kWorthSaying = 0.3;  // of the largest part
  constexpr std::size_t kMost = 2;
  for (std::size_t i = 0; i < std::min(kMost, parts.size()); ++i) {
    if (parts[i].first <= 0 || parts[i].first < kWorthSaying * parts.front().first) break;
    const bool small = best.time.step_s < 1;
    text += fmt::format("{} {:.3g} {} more of {}", i == 0 ? ":" : ",",
                        parts[i].first * (small ? 1e3 : 1), small ? "ms" : "s",
                        named(parts[i].second, best, other));
  }
  return text;
}

}  // namespace axonn
