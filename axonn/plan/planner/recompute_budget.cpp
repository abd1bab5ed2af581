#include "axonn/plan/planner/recompute_budget.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/model.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

namespace {

/// Blocks of a model; 1 if a model of another program does not say.
std::int64_t blocks_of(const PreparedRun& run) {
  return std::max<std::int64_t>(run->model.layers, 1);
}

/// The run with few blocks, among which is one of each kind, unless adapters differ by block.
PreparedRun with_few_blocks(const PreparedRun& run) {
  const ModelConfig& model = run->model;
  std::int64_t blocks = 2;
  if (model.experts > 0) {
    blocks = std::max(blocks, model.expert_step);
    for (const std::int64_t layer : model.dense_layers) blocks = std::max(blocks, layer + 2);
  }
  for (std::int64_t layer = 1; layer < model.layers; ++layer) {
    std::int64_t same = 0;
    while (model.kind_of(same) != model.kind_of(layer)) ++same;
    if (same == layer) blocks = std::max(blocks, layer + 1);
  }
  const bool whole = model.layer_input + model.shared_kv_layers > 0;
  if (whole || differs_by_block(model.lora)) return run;
  return run.with([&](Config& config) { config.model.layers = std::min(blocks, model.layers); });
}

/// Bytes that a step of one micro-batch keeps between forward and backward, and its time.
struct MicroBatchCost {
  std::int64_t kept_bytes = 0;
  double seconds = 0;
};

/// Compares sets of values that a step of one micro-batch computes again with none.
class SetCosts {
 public:
  SetCosts(const PreparedRun& run, const Machine& machine, DrySteps& steps)
      : run_(run),
        steps_(steps),
        costs_(machine, run->parallelism.grid(), run->parallelism.collectives),
        none_(step({})) {}

  RecomputePlan of(Recompute values) const {
    const MicroBatchCost with = step(values);
    return {values, none_.kept_bytes - with.kept_bytes,
            std::max(with.seconds - none_.seconds, 0.0)};
  }

 private:
  MicroBatchCost step(Recompute values) const {
    const PreparedRun run = run_.with([&](Config& config) {
      set_recomputed(config.activation_checkpoint, {.of_others = values});
    });
    const DryStep dry = steps_.step(run, {.recording = true, .most_micro_batches = 1});
    return {dry.kept_bytes, simulate(dry.recording, costs_).step_s};
  }

  const PreparedRun run_;
  DrySteps& steps_;
  const MachineCosts costs_;
  const MicroBatchCost none_;
};

Recompute with(Recompute values, std::size_t value) {
  values.add(static_cast<Remade>(value));
  return values;
}

/// Every set that saves something; first the empty one.
std::vector<RecomputePlan> all_sets(const SetCosts& costs) {
  std::vector<RecomputePlan> all{{}};
  for (std::size_t value = 0; value < kRemadeNames.size(); ++value) {
    // A value that saves nothing alone saves nothing together with those before it.
    const std::size_t before = costs.of(with({}, value)).saved_bytes > 0 ? all.size() : 0;
    for (std::size_t i = 0; i < before; ++i)
      if (const RecomputePlan plan = costs.of(with(all[i].values, value)); plan.saved_bytes > 0)
        all.push_back(plan);
  }
  return all;
}

/// The values that blocks of the model may have; those of a program's own model may have all.
std::vector<std::size_t> values_of(const PreparedRun& run) {
  const ModelConfig& model = run->model;
  const bool known = !architecture_of(model.family);
  std::vector<std::size_t> values;
  for (std::size_t value = 0; value < kRemadeNames.size(); ++value) {
    const auto kind = static_cast<Remade>(value);
    const bool never = (kind == Remade::heads && model.qk_norm == QkNormKind::none) ||
                       (kind == Remade::exchanged && run->parallelism.experts == 1);
    if (!known || !never) values.push_back(value);
  }
  return values;
}

/// A value that may be added to a set, and the bytes that it saves for its time: as of the set for
/// which that was last found, since the ratio seldom grows with the set.
struct NextValue {
  std::size_t value = 0;
  double ratio = std::numeric_limits<double>::infinity();
  std::size_t found_for = 0;  ///< number of sets up to that one; 0: none
};

/// From the empty set on, each with the one of `values` added that saves the most bytes for its
/// time.
std::vector<RecomputePlan> nested_sets(const SetCosts& costs,
                                       const std::vector<std::size_t>& values) {
  std::vector<RecomputePlan> nested{{}};
  std::vector<NextValue> left;
  for (const std::size_t value : values) left.push_back({value});
  std::map<std::size_t, RecomputePlan> plans;  // by value: with the last set and the value
  while (!left.empty()) {
    const RecomputePlan& last = nested.back();
    const auto next = std::ranges::max_element(left, {}, &NextValue::ratio);
    if (next->found_for == nested.size()) {
      if (next->ratio == 0) break;
      nested.push_back(plans.at(next->value));
      left.erase(next);
      continue;
    }
    const RecomputePlan plan = costs.of(with(last.values, next->value));
    const auto saved = static_cast<double>(plan.saved_bytes - last.saved_bytes);
    next->ratio = std::max(saved, 0.0) / std::max(plan.seconds - last.seconds, 1e-12);
    next->found_for = nested.size();
    plans.insert_or_assign(next->value, plan);
  }
  return nested;
}

std::vector<RecomputePlan> plans_of(const PreparedRun& run, const Machine& machine,
                                    RecomputeSets sets, DrySteps& steps) {
  const SetCosts costs(with_few_blocks(run), machine, steps);
  std::vector<RecomputePlan> plans{{}};
  if (run->model.layers > 0)  // else it is a model of another program, which need not have blocks
    plans = sets == RecomputeSets::all ? all_sets(costs) : nested_sets(costs, values_of(run));
  plans.push_back(costs.of(Recompute::all()));
  return best_plans(std::move(plans));
}

/// Rates of one core of a server's processor, or of a part of one: only their ratio matters.
Machine usual_processor() {
  return {.name = "a usual processor",
          .device = "cpu",
          .devices_per_node = 1 << 16,  // no nodes
          .memory_bytes = 1e12,
          .bf16 = {.flops_per_s = 1e11},
          .f32 = {.flops_per_s = 1e11},
          .attention_flops_per_s = 3e10,
          .memory_bytes_per_s = 1e10,
          .launch_s = 1e-6,
          .disk_bytes_per_s = 1e9,
          .device_bytes_per_s = 3e9,
          .device_latency_s = 1e-5};
}

}  // namespace

std::vector<RecomputePlan> best_plans(std::vector<RecomputePlan> all) {
  std::ranges::stable_sort(all, [](const RecomputePlan& a, const RecomputePlan& b) {
    return std::pair(a.saved_bytes, a.seconds) < std::pair(b.saved_bytes, b.seconds);
  });
  // Whether the mix of a and c that saves as much as b takes at most as long.
  const auto beaten = [](const RecomputePlan& b, const RecomputePlan& a, const RecomputePlan& c) {
    const double share = static_cast<double>(b.saved_bytes - a.saved_bytes) /
                         static_cast<double>(c.saved_bytes - a.saved_bytes);
    return a.seconds + share * (c.seconds - a.seconds) <= b.seconds;
  };
  std::vector<RecomputePlan> best;
  for (const RecomputePlan& plan : all) {
    if (!best.empty() && plan.saved_bytes == best.back().saved_bytes) continue;
    while (best.size() > 1 && beaten(best.back(), best[best.size() - 2], plan)) best.pop_back();
    best.push_back(plan);
  }
  return best;
}

RecomputeLevels::RecomputeLevels(const PreparedRun& run, const Machine& machine, RecomputeSets sets,
                                 std::shared_ptr<DrySteps> steps)
    : run_(run),
      steps_(std::move(steps)),
      blocks_(blocks_of(run)),
      few_(blocks_of(with_few_blocks(run))),
      plans_(plans_of(run, machine, sets, *steps_)) {}

std::int64_t RecomputeLevels::last() const { return (std::ssize(plans_) - 1) * blocks_; }

PreparedRun RecomputeLevels::at(std::int64_t level) const {
  const auto plan = plans_.begin() + level / blocks_;
  RecomputedBlocks blocks{.of_others = plan->values};
  if (level % blocks_ > 0) {
    blocks.first = level % blocks_;
    blocks.of_first = (plan + 1)->values;
  }
  return run_.with([&](Config& config) { set_recomputed(config.activation_checkpoint, blocks); });
}

double RecomputeLevels::more_seconds(std::int64_t level) const {
  const auto plan = plans_.begin() + level / blocks_;
  const std::int64_t first = level % blocks_;
  double blocks = static_cast<double>(blocks_ - first) * plan->seconds;
  if (first > 0) blocks += static_cast<double>(first) * (plan + 1)->seconds;
  return blocks / static_cast<double>(few_) * static_cast<double>(micro_batch_count(run_.config()));
}

double RecomputeLevels::least_seconds(const PreparedRun& other, std::int64_t bytes) const {
  const auto share_of = [](const PreparedRun& run) {  // of the model's values
    const ParallelismConfig& p = run->parallelism;
    return static_cast<double>(run->training.micro_batch) / (p.x * p.y * p.context);
  };
  const double larger = share_of(other) / share_of(run_) * static_cast<double>(blocks_) /
                        static_cast<double>(few_),  // than the values of plans_
      saved = static_cast<double>(bytes) / larger;
  const auto next = std::ranges::find_if(plans_, [&](const RecomputePlan& plan) {
    return static_cast<double>(plan.saved_bytes) >= saved;
  });
  double seconds = plans_.back().seconds;
  if (next == plans_.begin()) return 0;
  if (next != plans_.end()) {
    const RecomputePlan& before = *(next - 1);
    const double part = (saved - static_cast<double>(before.saved_bytes)) /
                        static_cast<double>(next->saved_bytes - before.saved_bytes);
    seconds = std::lerp(before.seconds, next->seconds, part);
  }
  return seconds * larger * static_cast<double>(micro_batch_count(other.config()));
}

std::int64_t RecomputeLevels::about(std::int64_t budget) const {
  const auto bytes_of = [&](std::int64_t plan) {  // which steps_ remembers
    return estimate_memory(at(plan * blocks_), *steps_);
  };
  const std::int64_t none = bytes_of(0), last_plan = std::ssize(plans_) - 1;
  if (none <= budget || last_plan == 0) return 0;
  // What few blocks save leads close to the first plan that fits.
  const std::int64_t wanted = (none - budget) * few_ / blocks_;
  std::int64_t plan = 1;
  while (plan < last_plan && plans_[plan].saved_bytes < wanted) ++plan;
  while (plan < last_plan && bytes_of(plan) > budget) ++plan;
  while (plan > 1 && bytes_of(plan - 1) <= budget) --plan;
  const std::int64_t bytes = bytes_of(plan), before = bytes_of(plan - 1);
  if (bytes > budget) return last();
  return plan * blocks_ - (budget - bytes) * blocks_ / std::max(before - bytes, std::int64_t{1});
}

std::int64_t RecomputeLevels::least(const std::function<bool(const PreparedRun&)>& fits,
                                    std::int64_t guess) const {
  return search_level([&](std::int64_t level) { return fits(at(level)); }, guess);
}

std::int64_t RecomputeLevels::least_within(std::int64_t budget, const Peak& peak,
                                           std::int64_t guess) const {
  KnownPeaks known;
  const std::int64_t likely = likely_least(budget, peak, guess, known);
  return search_level([&](std::int64_t one) { return peak_at(one, peak, known) <= budget; },
                      likely);
}

std::int64_t RecomputeLevels::likely_least_within(std::int64_t budget, const Peak& peak,
                                                  std::int64_t guess) const {
  KnownPeaks known;
  const std::int64_t likely = likely_least(budget, peak, guess, known);
  if (peak_at(likely, peak, known) <= budget) return likely;
  return search_level([&](std::int64_t one) { return peak_at(one, peak, known) <= budget; },
                      likely);
}

std::int64_t RecomputeLevels::peak_at(std::int64_t level, const Peak& peak,
                                      KnownPeaks& known) const {
  const auto found = known.find(level);
  return found != known.end() ? found->second : known[level] = peak(at(level));
}

std::int64_t RecomputeLevels::likely_least(std::int64_t budget, const Peak& peak,
                                           std::int64_t guess, KnownPeaks& known) const {
  std::int64_t level = std::clamp(guess, std::int64_t{0}, last());
  for (int i = 0; i < 4 && last() > 0; ++i) {
    const std::int64_t missing = peak_at(level, peak, known) - budget;
    // Within the level's plan, a block more saves what the next plan saves more than this one.
    const std::int64_t plan = std::min(missing > 0 ? level : level - 1, last() - 1) / blocks_;
    if (missing <= 0 && level == 0) break;
    const auto& [a, b] = std::tie(plans_[plan], plans_[plan + 1]);
    const std::int64_t each = std::max((b.saved_bytes - a.saved_bytes) / few_, std::int64_t{1});
    const std::int64_t more = missing > 0 ? (missing + each - 1) / each : missing / each;
    const std::int64_t next = std::clamp(level + more, plan * blocks_, (plan + 1) * blocks_);
    if (next == level) break;
    level = next;
  }
  return level;
}

std::int64_t RecomputeLevels::search_level(const std::function<bool(std::int64_t)>& fits,
                                           std::int64_t guess) const {
  std::int64_t low = 0, high = last();  // between which it lies
  std::int64_t level = guess;
  bool bounded_below = false, bounded_above = false;
  for (std::int64_t step = 1; low < high; step *= 2) {
    level = std::clamp(level, low, high - 1);
    const bool fit = fits(level);
    (fit ? high : low) = fit ? level : level + 1;
    (fit ? bounded_above : bounded_below) = true;
    level = bounded_below && bounded_above ? low + (high - low) / 2
            : fit                          ? high - step
                                           : low + step;
  }
  return low;
}

Machine machine_of(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  if (!p.machine.empty()) return read_machine(p.machine);
  if (!is_gpu(p.device)) return usual_processor();
  return read_machine(p.device == DeviceKind::hip ? "frontier" : "dgx-h100");
}

std::int64_t largest_peak(const PreparedRun& run) {
  const GridShape grid = run->parallelism.grid();
  std::int64_t peak = 0;
  for (int rank = 0; rank < grid.x * grid.y; ++rank)
    peak = std::max(peak, dry_step(run, rank).memory.peak_bytes);
  return peak;
}

PreparedRun within_budget(const PreparedRun& run) {
  const std::int64_t budget = run->activation_checkpoint.budget;
  if (budget == 0 || run->parallelism.automatic()) return run;
  const auto steps = std::make_shared<DrySteps>();
  const RecomputeLevels levels(run, machine_of(run.config()), RecomputeSets::all, steps);
  const auto peak_of = [&](const PreparedRun& one) { return steps->step(one).memory.peak_bytes; };
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto tried = [&](std::int64_t level) -> std::optional<PreparedRun> {
    const PreparedRun chosen = levels.at(level);
    const std::int64_t peak = largest_peak(chosen);
    least = std::min(least, peak);
    if (peak > budget) return std::nullopt;
    return chosen.with([&](Config& config) { config.activation_checkpoint.peak_bytes = peak; });
  };
  // Rank 0 has the largest pieces where they are uneven; the others confirm it.
  for (std::int64_t level = levels.least_within(budget, peak_of, levels.about(budget));
       level <= levels.last(); ++level)
    if (const auto found = tried(level)) return *found;
  // While a block makes many values again, they are all there, which may take more than other
  // blocks free. Then the least peak is that of an earlier level.
  for (std::int64_t level = 0; level < levels.last(); ++level)
    if (const auto found = tried(level)) return *found;
  refuse("[activation_checkpoint] budget = ", budget, ": even if blocks are recomputed, a rank's ",
         "step takes ", format_bytes(least), "; set budget to at least ", least,
         ", or use a smaller training.micro_batch, or more ranks");
}

PreparedRun with_recomputation_of_rank_0(const PreparedRun& run, Communicator& world) {
  const RecomputeConfig& recompute = run->activation_checkpoint;
  const RecomputedBlocks mine = recomputed_blocks(recompute);
  std::array<std::int64_t, 4> numbers = {mine.first, mine.of_first.bits(), mine.of_others.bits(),
                                         recompute.peak_bytes};
  world.broadcast(buffer(std::span<std::int64_t>(numbers)), 0, "recomputation").wait();
  return run.with([&](Config& config) {
    set_recomputed(config.activation_checkpoint,
                   {numbers[0], Recompute::of_bits(numbers[1]), Recompute::of_bits(numbers[2])});
    config.activation_checkpoint.peak_bytes = numbers[3];
  });
}

}  // namespace axonn
