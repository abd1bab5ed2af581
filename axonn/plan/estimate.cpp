#include "axonn/plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "axonn/measure/dry_step.h"
#include "axonn/plan/costs.h"
#include "axonn/plan/depth.h"

namespace axonn {

namespace {

using Figures = std::map<std::string, double>;

double extend(double a, double b, double weight) { return a + weight * (b - a); }

Figures extend(const Figures& a, const Figures& b, double weight) {
  Figures out;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    out[name] = extend(value, other == b.end() ? 0 : other->second, weight);
  }
  for (const auto& [name, value] : b)
    if (!a.contains(name)) out[name] = extend(0, value, weight);
  return out;
}

int micro_batches(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  return static_cast<int>(config.training.global_batch /
                          (config.training.micro_batch * p.z * p.data));
}

Config with_micro_batches(Config config, int count) {
  const ParallelismConfig& p = config.parallelism;
  config.training.global_batch = config.training.micro_batch * p.z * p.data * count;
  return config;
}

StepTime simulated(const Config& config, const Machine& machine) {
  const DryStep dry =
      dry_step(config, 0, {.schedule = true, .most_micro_batches = micro_batches(config)});
  return simulate(dry.schedule, MachineCosts(machine, config.parallelism.grid()));
}

/// The time of a step with config's blocks, extrapolated over its micro-batches.
StepTime over_micro_batches(const Config& config, const Machine& machine) {
  const int count = micro_batches(config);
  if (count <= 3) return simulated(config, machine);
  return extended(simulated(with_micro_batches(config, 2), machine),
                  simulated(with_micro_batches(config, 3), machine), count - 2);
}

/// a + weight · (b - a) in integers.
std::int64_t extended_bytes(std::int64_t a, std::int64_t b, double weight) {
  return a + std::llround(weight) * (b - a);
}

std::int64_t peak(const Config& config) { return dry_step(config, 0).memory.peak_bytes; }

}  // namespace

StepTime extended(const StepTime& a, const StepTime& b, double weight) {
  StepTime time{.compute_s = extend(a.compute_s, b.compute_s, weight),
                .compute_by = extend(a.compute_by, b.compute_by, weight),
                .exposed_by = extend(a.exposed_by, b.exposed_by, weight),
                .comm_by = extend(a.comm_by, b.comm_by, weight)};
  // More and more compute hides a collective only until it is hidden completely.
  for (auto& [name, seconds] : time.exposed_by) seconds = std::max(seconds, 0.0);
  time.step_s = time.compute_s + time.exposed_s();
  return time;
}

StepTime estimate_time(const Config& config, const Machine& machine) {
  return over_depth(
      config, [&](const Config& some) { return over_micro_batches(some, machine); }, extended);
}

StepTime estimate_whole_depth(const Config& config, const Machine& machine) {
  return over_micro_batches(config, machine);
}

StepTime simulate_whole_step(const Config& config, const Machine& machine) {
  return simulated(config, machine);
}

std::int64_t estimate_memory(const Config& config) {
  return over_depth(config, peak, extended_bytes);
}

std::int64_t exact_memory(const Config& config) { return peak(config); }

}  // namespace axonn
