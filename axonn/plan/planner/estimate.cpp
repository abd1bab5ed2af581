#include "axonn/plan/planner/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "axonn/network/model/model.h"
#include "axonn/plan/measure/dry_rollouts.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/optim/muon.h"
#include "axonn/run/train/local_state.h"
#include "axonn/run/train/state_blocks.h"

namespace axonn {

namespace {

/// The recording of a step with `times` as many rows.
Recording scaled(Recording recording, double times) {
  const auto scale = [&](std::int64_t& value) {
    value = static_cast<std::int64_t>(static_cast<double>(value) * times);
  };
  for (Recording::Event& event : recording.events) {
    if (auto* start = std::get_if<Recording::Start>(&event)) {
      if (is_of_rows(start->group)) scale(start->bytes);
    } else if (auto* op = std::get_if<Recording::Compute>(&event)) {
      if (op->layer == kMuonLayer) continue;  // its matrices are parameters
      auto& operands = op->operands;
      // Flat buffers of parameters, their gradients and the optimizer's state have one row.
      if (std::ranges::all_of(operands, [](const auto& operand) { return operand.rows == 1; }))
        continue;
      op->flops *= times;
      if (op->kind == OperationKind::product) {  // a weight's gradient sums over the rows; other
        scale(operands[1].rows);                 // products have them in output and a
        scale(operands[op->a_transposed ? 2 : 0].rows);
        continue;
      }
      for (Recording::Matrix& operand : operands)
        if (operand.rows > 1) scale(operand.rows);
    }
  }
  return recording;
}

/// a + weight · (b - a) for each figure; those that only one of the two has are 0 in the other.
std::map<std::string, double> extend(std::map<std::string, double> a,
                                     std::map<std::string, double> b, double weight) {
  for (const auto& [name, value] : b) a.try_emplace(name, 0);
  for (auto& [name, value] : a) value += weight * (b[name] - value);
  return a;
}

/// All figures of a prediction, continued likewise; exposed seconds are at least 0.
Prediction extend(const Prediction& a, const Prediction& b, std::int64_t weight) {
  const auto times = static_cast<double>(weight);
  StepTime time{.compute_s = a.time.compute_s + times * (b.time.compute_s - a.time.compute_s),
                .compute_by = extend(a.time.compute_by, b.time.compute_by, times),
                .exposed_by = extend(a.time.exposed_by, b.time.exposed_by, times),
                .late_by = extend(a.time.late_by, b.time.late_by, times),
                .comm_by = extend(a.time.comm_by, b.time.comm_by, times),
                .alone_by = extend(a.time.alone_by, b.time.alone_by, times)};
  // More and more compute hides a collective only until it is hidden completely.
  for (auto& [name, seconds] : time.exposed_by) seconds = std::max(seconds, 0.0);
  time.step_s = time.compute_s + time.exposed_s();
  return {time, a.memory_bytes + weight * (b.memory_bytes - a.memory_bytes)};
}

PreparedRun with_blocks(const PreparedRun& run, std::int64_t blocks) {
  return run.with([&](Config& config) { config.model.layers = blocks; });
}

/// Numbers of blocks from which a figure of all of them is extrapolated: it is
/// first + times · (second - first), of so many blocks each.
struct Depths {
  std::int64_t first = 0, second = 0, times = 0;
};

/// The least period with which the kinds of layers repeat from a layer on.
std::int64_t period_of(const ModelConfig& model, std::int64_t from) {
  std::int64_t period = 1;
  for (std::int64_t layer = from; layer + period < model.layers; ++layer)
    if (model.kind_of(layer) != model.kind_of(layer + period)) {
      ++period;
      layer = from - 1;
    }
  return period;
}

/// At least `least` blocks. Those from the first on repeat with the period of kinds of layers.
Depths depths_of(const ModelConfig& model, std::int64_t least) {
  if (differs_by_block(model.lora) || model.layer_input + model.shared_kv_layers > 0)
    return {model.layers, model.layers, 0};
  if (model.experts > 0)
    for (const std::int64_t layer : model.dense_layers) least = std::max(least, layer + 1);
  const std::int64_t period = period_of(model, least);
  if (model.layers <= least + period) return {model.layers, model.layers, 0};
  const std::int64_t first = least + (model.layers - least) % period;
  return {first, first + period, (model.layers - first) / period};
}

/// f(run), extrapolated from three and four blocks if there are more. The first and the last
/// block have other neighbours; of three, one has blocks on both sides.
template <typename F>
Prediction over_depth(const PreparedRun& run, const F& f) {
  const auto [first, second, times] = depths_of(run->model, 3);
  const Prediction few = f(with_blocks(run, first));
  return times == 0 ? few : extend(few, f(with_blocks(run, second)), times);
}

Prediction simulated(const PreparedRun& run, int micro_batches, const Costs& costs,
                     DrySteps& steps) {
  const DryStep dry = steps.step(run, {.recording = true, .most_micro_batches = micro_batches});
  return {simulate(dry.recording, costs), dry.memory.peak_bytes};
}

/// A step whose only micro-batch has the rows of all.
DryStep whole_batch(const PreparedRun& run, DrySteps& steps) {
  DryStep dry = steps.step(run, {.recording = true, .most_micro_batches = 1});
  const auto times = static_cast<double>(micro_batch_count(run.config()));
  dry.recording = scaled(std::move(dry.recording), times);
  return dry;
}

/// Costs of which only collectives along x and y are left.
class CostsOfXY final : public Costs {
 public:
  explicit CostsOfXY(const Costs& all) : all_(all) {}
  double compute_s(const Recording::Compute& operation) const override {
    return all_.compute_s(operation);
  }
  CollectiveCost collective(const Recording::Start& start) const override {
    const bool left = start.group == name_of(Axis::x) || start.group == name_of(Axis::y);
    return left ? all_.collective(start) : CollectiveCost{.collectives = 0};
  }
  double lateness_s(double computed_s, double collectives) const override {
    return all_.lateness_s(computed_s, collectives);
  }
  Slowdowns slowdowns() const override { return all_.slowdowns(); }

 private:
  const Costs& all_;
};

/// predict() without local checkpoints.
Prediction predict_step(const PreparedRun& run, const Machine& machine, DrySteps& steps) {
  const MachineCosts costs(machine, run->parallelism.grid(), run->parallelism.collectives);
  const std::int64_t count = micro_batch_count(run.config());
  const Prediction three = simulated(run, 3, costs, steps);
  if (count <= 3) return three;
  return {extend(simulated(run, 2, costs, steps), three, count - 2).time, three.memory_bytes};
}

/// The seconds of each step that a node's links take to send the local checkpoints of its ranks.
double sending_s(const PreparedRun& run, const Machine& machine) {
  const GridShape shape = run->parallelism.grid();
  const std::int64_t every = run->checkpoint.local_every, ranks = shape.ranks();
  if (every == 0 || ranks <= machine.devices_per_node) return 0;
  const auto world = make_dry_world(shape, 0);
  const Grid grid(*world, shape);
  const auto model = make_model(run->model, grid);
  const std::vector<ParameterGroup*> trained = trained_groups(*model);
  const std::int64_t shard = piece_bytes(trained, state_form(run->optimizer)),
                     sent = local_bytes(run.config(), shard).sent * machine.devices_per_node;
  return static_cast<double>(sent) / static_cast<double>(every) / machine.node_bytes_per_s;
}

/// A step cannot be shorter than the sending of local checkpoints, which is hidden behind it.
Prediction with_sending(Prediction prediction, const PreparedRun& run, const Machine& machine) {
  StepTime& time = prediction.time;
  const double more = sending_s(run, machine) - time.step_s;
  if (more <= 0) return prediction;
  time.exposed_by[kLocalCheckpoints] = more;
  time.step_s += more;
  return prediction;
}

/// The state of a model of so many blocks, as ParameterGroup and OptimizerState hold it.
std::int64_t state_of(const PreparedRun& run, const Grid& grid, std::int64_t blocks) {
  if (!run->offload.dir.empty()) return 0;  // the bound takes what is in memory at a time
  const auto model = make_model(with_blocks(run, blocks)->model, grid);
  const DType type = run->training.dtype;
  const std::int64_t f32 = bytes_of(DType::f32), shard = bytes_of(type) + f32;
  StateForm form = state_form(run->optimizer);
  if (type == DType::f32) --form.f32;  // the master copy is part of the compute copy
  std::int64_t bytes = 0;
  for (const ParameterGroup* group : model->groups())
    bytes += group->frozen() ? group->shard_bytes(type)
                             : group->sizes().shard * shard + piece_bytes(*group, form);
  return bytes;
}

}  // namespace

Prediction predict(const PreparedRun& run, const Machine& machine, DrySteps& steps) {
  return with_sending(predict_step(run, machine, steps), run, machine);
}

RolloutCost rollout_cost(const PreparedRun& run, const Machine& machine) {
  const MachineCosts costs(machine, run->parallelism.grid(), run->parallelism.collectives);
  const auto written = [&](std::int64_t tokens) {
    return dry_rollouts(run, 0, {.answer_tokens = tokens, .recording = true});
  };
  const DryRollouts two = written(2), three = written(3);
  const double two_s = simulate(two.recording, costs).step_s,
               token_s = std::max(0.0, simulate(three.recording, costs).step_s - two_s);
  const std::int64_t answers = run->training.global_batch * run->rl.steps_per_generation,
                     rounds = (answers + two.at_once - 1) / two.at_once;
  const auto tokens = static_cast<double>(std::max<std::int64_t>(run->rl.max_tokens, 2) - 2);
  return {.holds = run->rl.hold_weights,
          .memory_bytes = std::max(two.memory.peak_bytes, three.memory.peak_bytes),
          .seconds = two_s + token_s * tokens * static_cast<double>(rounds)};
}

Prediction estimate(const PreparedRun& run, const Machine& machine, DrySteps& steps) {
  // Muon's rounds are not linear in the blocks: there may be one for the matrices of all of them.
  // A registered rule may have such rounds, too.
  const OptimizerKind kind = run->optimizer.kind;
  if (kind == OptimizerKind::muon || optimizer_rule_of(kind)) return predict(run, machine, steps);
  const auto step = [&](const PreparedRun& some) { return predict_step(some, machine, steps); };
  return with_sending(over_depth(run, step), run, machine);
}

double certain_seconds(const StepTime& estimated) {
  const auto late = estimated.exposed_by.find(kLateRanks);
  const double late_s = late == estimated.exposed_by.end() ? 0 : late->second,
               waits_s = estimated.exposed_s() - late_s;
  return std::max(estimated.step_s / 1.05, (estimated.step_s - 0.25 * waits_s) / 1.02);
}

std::int64_t estimate_memory(const PreparedRun& run, DrySteps& steps) {
  const auto peak = [&](const PreparedRun& some) {
    return Prediction{.memory_bytes = steps.step(some).memory.peak_bytes};
  };
  return over_depth(run, peak).memory_bytes;
}

Prediction optimistic(const PreparedRun& run, const Machine& machine, DrySteps& steps) {
  const MachineCosts costs(machine, run->parallelism.grid(), run->parallelism.collectives);
  return over_depth(run, [&](const PreparedRun& some) {
    const DryStep dry = whole_batch(some, steps);
    return Prediction{simulate(dry.recording, costs), dry.memory.peak_bytes};
  });
}

bool is_of_rows(std::string_view group) {
  return group == "x" || group == "y" || group == "context" || group == "experts";
}

double optimistic_seconds_of_xy(const PreparedRun& run, const Machine& machine) {
  const MachineCosts all(machine, run->parallelism.grid(), run->parallelism.collectives);
  const CostsOfXY costs(all);
  DrySteps steps;
  const auto seconds = [&](const PreparedRun& some) {
    return Prediction{.time = simulate(whole_batch(some, steps).recording, costs)};
  };
  return over_depth(run, seconds).time.step_s;
}

std::vector<Prediction> optimistic_on(const std::vector<GridShape>& grids, const PreparedRun& run,
                                      const Machine& machine) {
  std::map<std::int64_t, DryStep> known;  // by blocks
  DrySteps steps;
  std::vector<Prediction> all;
  for (const GridShape& grid : grids) {
    const MachineCosts costs(machine, grid, run->parallelism.collectives);
    all.push_back(over_depth(run, [&](const PreparedRun& some) {
      const auto [found, added] = known.try_emplace(some->model.layers);
      if (added) found->second = whole_batch(some, steps);
      const DryStep& dry = found->second;
      return Prediction{simulate(dry.recording, costs), dry.memory.peak_bytes};
    }));
  }
  return all;
}

std::int64_t state_bytes(const PreparedRun& run) {
  const auto world = make_dry_world(run->parallelism.grid(), 0);
  const Grid grid(*world, run->parallelism.grid());
  const auto [first, second, times] = depths_of(run->model, 1);
  const std::int64_t few = state_of(run, grid, first);
  return times == 0 ? few : few + times * (state_of(run, grid, second) - few);
}

}  // namespace axonn
