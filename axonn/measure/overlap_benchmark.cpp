#include "axonn/measure/overlap_benchmark.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/clock.h"

namespace axonn {

namespace {

constexpr int kWarmup = 2, kSteps = 5;

/// Adds up the time that the phases of several steps take on this rank.
class PhaseClock {
 public:
  explicit PhaseClock(const Grid& grid) : waits_(grid) {
    for (Cost& cost : costs_) {
      cost.waited = waits_.by_kind();
      for (auto& [kind, seconds] : cost.waited) seconds = 0;
    }
  }

  /// From now on, time counts for this phase.
  void enter(Phase phase) {
    if (phase_) book();
    phase_ = phase;
    since_ = now_seconds();
    waits_.restart();
  }
  /// Adds the time since enter() to the current phase.
  void book() {
    Cost& cost = costs_[static_cast<int>(*phase_)];
    cost.seconds += now_seconds() - since_;
    const NamedSeconds waited = waits_.by_kind();
    for (std::size_t i = 0; i < waited.size(); ++i) cost.waited[i].second += waited[i].second;
  }

  /// Returns the cost of a phase, mean over the ranks and kSteps steps. Collective.
  PhaseCost cost(Communicator& world, Phase phase) const {
    const Cost& mine = costs_[static_cast<int>(phase)];
    double seconds = mine.seconds;
    world.all_reduce(buffer(std::span(&seconds, 1)), "overlap").wait();
    PhaseCost out{.compute_s = seconds / world.size() / kSteps,
                  .comm_by = mean_waits(world, mine.waited, kSteps)};
    for (const auto& [kind, waited] : out.comm_by) out.comm_s += waited;
    out.compute_s -= out.comm_s;
    return out;
  }

 private:
  struct Cost {
    double seconds = 0;
    NamedSeconds waited;
  };
  WaitClock waits_;
  std::array<Cost, 3> costs_;
  std::optional<Phase> phase_;
  double since_ = 0;
};

StepCost measure(const Config& config, Communicator& world) {
  Training training(config, world);
  training.model.initialise();
  PhaseClock clock(training.model.grid());
  double begin = 0, progress = 0;
  const auto step = [&](int i) {
    StepInput input = training.input(i);
    if (i >= kWarmup) input.on_phase = [&](Phase phase) { clock.enter(phase); };
    training.step.run(training.model.context(), input);
  };
  for (int i = 0; i < kWarmup + kSteps; ++i) {
    if (i == kWarmup) {
      begin = now_seconds();
      progress = world.progress_seconds();
    }
    step(i);
  }
  clock.book();
  std::array<double, 2> totals{now_seconds() - begin, world.progress_seconds() - progress};
  world.all_reduce(buffer(std::span(totals).first(1)), "overlap", ReduceOp::max).wait();
  world.all_reduce(buffer(std::span(totals).last(1)), "overlap").wait();
  return {.forward = clock.cost(world, Phase::forward),
          .backward = clock.cost(world, Phase::backward),
          .optimizer = clock.cost(world, Phase::optimizer),
          .step_s = totals[0] / kSteps,
          .progress_share = totals[1] / world.size() / totals[0]};
}

/// Moves the gather of updated weights over data from the optimizer phase to forward, since with
/// overlap the next forward waits for it.
void move_weights_to_forward(StepCost& cost) {
  NamedSeconds& from = cost.optimizer.comm_by;
  const auto at = std::ranges::find(from, "data all_gather", &NamedSeconds::value_type::first);
  if (at == from.end()) return;
  cost.forward.comm_s += at->second;
  cost.optimizer.comm_s -= at->second;
  cost.forward.comm_by.push_back(std::move(*at));
  from.erase(at);
}

Config without_overlap(Config config) {
  ParallelismConfig& p = config.parallelism;
  p.chunks = 1;
  p.overlap_input_gradients = p.overlap_weight_gradients = false;
  p.overlap_weights = p.overlap_data = false;
  return config;
}

std::string line(const char* name, const PhaseCost& cost) {
  std::string text = fmt::format("    {:<10} compute {:8.1f} ms, communication {:8.1f} ms", name,
                                 cost.compute_s * 1e3, cost.comm_s * 1e3);
  for (const auto& [kind, seconds] : cost.comm_by)
    if (seconds > 0.02 * cost.comm_s) text += fmt::format(", {} {:.1f}", kind, seconds * 1e3);
  return text + '\n';
}

std::string lines(const StepCost& cost) {
  return line("forward", cost.forward) + line("backward", cost.backward) +
         line("optimizer", cost.optimizer);
}

nlohmann::ordered_json json_of(const PhaseCost& cost) {
  nlohmann::ordered_json by = nlohmann::ordered_json::object();
  for (const auto& [kind, seconds] : cost.comm_by) by[kind] = seconds;
  return {{"compute_s", cost.compute_s}, {"comm_s", cost.comm_s}, {"comm_s_by", by}};
}

nlohmann::ordered_json json_of(const StepCost& cost) {
  return {{"step_s", cost.step_s},
          {"forward", json_of(cost.forward)},
          {"backward", json_of(cost.backward)},
          {"optimizer", json_of(cost.optimizer)},
          {"progress_share", cost.progress_share}};
}

}  // namespace

double OverlapReport::ideal_s() const {
  return std::max(off.forward.compute_s, off.forward.comm_s) +
         std::max(off.backward.compute_s, off.backward.comm_s) + off.optimizer.compute_s;
}

OverlapReport overlap_benchmark(const Config& config, Communicator& world) {
  OverlapReport report{.grid = config.parallelism.grid(), .chunks = config.parallelism.chunks};
  report.off = measure(without_overlap(config), world);
  report.on = measure(config, world);
  move_weights_to_forward(report.off);
  return report;
}

std::string to_text(const OverlapReport& r) {
  return fmt::format(
      "grid {}: {:.1f} ms per step (mean of {}), {:.1f} ms without overlap, {:.1f} ms with perfect "
      "overlap: {:.2f} times that\n  without overlap, progress threads {:.1f} % of a core each\n{} "
      " with overlap, {} chunks, progress threads {:.1f} % of a core each\n{}",
      to_string(r.grid), r.on.step_s * 1e3, kSteps, r.off.step_s * 1e3, r.ideal_s() * 1e3,
      r.ratio(), 100 * r.off.progress_share, lines(r.off), r.chunks, 100 * r.on.progress_share,
      lines(r.on));
}

std::string to_json(const OverlapReport& r) {
  const nlohmann::ordered_json json = {
      {"grid", {{"x", r.grid.x}, {"y", r.grid.y}, {"z", r.grid.z}, {"data", r.grid.data}}},
      {"chunks", r.chunks},
      {"without_overlap", json_of(r.off)},
      {"with_overlap", json_of(r.on)},
      {"ideal_s", r.ideal_s()},
      {"ratio", r.ratio()}};
  return json.dump(2) + "\n";
}

}  // namespace axonn
