#include "axonn/plan/bound.h"

#include <cmath>

#include "axonn/comm/dry_world.h"
#include "axonn/measure/dry_step.h"
#include "axonn/model/model.h"
#include "axonn/plan/costs.h"
#include "axonn/plan/depth.h"
#include "axonn/plan/estimate.h"

namespace axonn {

namespace {

/// The costs of a step with `times` as many rows.
class ScaledCosts final : public Costs {
 public:
  ScaledCosts(const Costs& costs, double times) : costs_(costs), times_(times) {}

  double compute_s(const Schedule::Compute& op) const override {
    if (op.kind == OperationKind::product) {
      scratch_ = op;
      scratch_.flops *= times_;
      // A weight's gradient sums over the rows; in all other products they are the output's rows.
      if (!op.a_transposed) scale(scratch_.operands[0]);
      scale(scratch_.operands[1]);
      if (op.a_transposed) scale(scratch_.operands[2]);
      return costs_.compute_s(scratch_);
    }
    const double seconds = costs_.compute_s(op);
    return of_parameters(op) ? seconds : times_ * seconds;
  }
  CollectiveCost collective(const Schedule::Start& start) const override {
    CollectiveCost cost = costs_.collective(start);
    if (start.group == "x" || start.group == "y") cost.link_s *= times_;
    return cost;
  }
  double overlap_slowdown() const override { return costs_.overlap_slowdown(); }
  double collective_slowdown() const override { return costs_.collective_slowdown(); }

 private:
  static bool of_parameters(const Schedule::Compute& op) {
    return op.kind == OperationKind::update ||
           (op.kind == OperationKind::device && op.operation != "copy");
  }
  void scale(Schedule::Matrix& matrix) const {
    matrix.rows = static_cast<std::int64_t>(static_cast<double>(matrix.rows) * times_);
  }

  const Costs& costs_;
  const double times_;
  mutable Schedule::Compute scratch_;
};

Optimistic extend(const Optimistic& a, const Optimistic& b, double weight) {
  return {a.seconds + weight * (b.seconds - a.seconds),
          a.memory_bytes + std::llround(weight) * (b.memory_bytes - a.memory_bytes)};
}

/// The state of a model of so many blocks, as ParameterGroup and OptimizerState hold it.
std::int64_t state_of(const Config& config, const Grid& grid, std::int64_t blocks) {
  const auto model = make_model(with_blocks(config, blocks).model, grid);
  const DType type = config.training.dtype;
  const std::int64_t f32 = bytes_of(DType::f32), shard = bytes_of(type) + f32,
                     master = type == DType::f32 ? 0 : f32,
                     moments = f32 * std::ssize(make_optimizer(config.optimizer)->state_names());
  std::int64_t bytes = 0;
  for (const ParameterGroup* group : model->groups()) {
    const FlatSizes sizes = group->sizes();
    bytes += group->frozen() ? sizes.shard * bytes_of(type)
                             : sizes.shard * shard + sizes.piece * (master + moments);
  }
  return bytes;
}

}  // namespace

std::int64_t state_bytes(const Config& config) {
  const auto world = make_dry_world(config.parallelism.grid(), 0);
  const Grid grid(*world, config.parallelism.grid());
  const std::int64_t one = state_of(config, grid, 1), two = state_of(config, grid, 2);
  return one + (config.model.layers - 1) * (two - one);
}

Optimistic optimistic(const Config& config, const Machine& machine) {
  const ParallelismConfig& p = config.parallelism;
  const std::int64_t one = config.training.micro_batch * p.z * p.data;
  const MachineCosts costs(machine, p.grid());
  const ScaledCosts scaled(costs, static_cast<double>(config.training.global_batch / one));
  Config alone = config;
  alone.training.global_batch = one;
  return over_depth(
      alone,
      [&](const Config& some) {
        const DryStep dry = dry_step(some, 0, {.schedule = true});
        return Optimistic{simulate(dry.schedule, scaled).step_s, dry.memory.peak_bytes};
      },
      extend);
}

}  // namespace axonn
