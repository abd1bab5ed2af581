#include "axonn/plan/measure/compare.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/foundation/base/random.h"
#include "axonn/run/train/expert_balance.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

std::string find_differing_replica(const Context& ctx, Model& model) {
  std::string found;
  for (ParameterGroup* group : model.groups()) {
    group->acquire(ctx);
    for (const auto& parameter : group->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      const View block = parameter->weight();
      std::string bytes(block.count() * bytes_of(block.dtype), '\0');
      ctx.device().copy_to_host(bytes.data(), block.data, static_cast<std::int64_t>(bytes.size()));
      const auto hash = static_cast<std::int64_t>(hash_text(bytes));
      for (Axis axis : kAxes) {
        if (axis == spec.layout.row_axis || axis == spec.layout.col_axis) continue;  // cut
        const bool of_expert = axis == Axis::z && spec.layout.expert;
        Communicator& along = of_expert ? ctx.grid.same_experts() : ctx.grid.along(axis);
        std::vector<std::int64_t> all(along.size());
        along.all_gather(buffer(std::span(all)), buffer(std::span(&hash, 1)), spec.name).wait();
        if (found.empty() && std::ranges::count(all, hash) != std::ssize(all))
          found = fmt::format("{} along {}", spec.name, name_of(axis));
      }
    }
    group->release();
  }
  return found;
}

/// 0 if neither is a number: in both runs no target of the step counts.
double relative(double want, double got) {
  if (want == got || (std::isnan(want) && std::isnan(got))) return 0;
  const double difference = std::abs(want - got) / std::max(std::abs(want), 1e-300);
  return std::isnan(difference) ? INFINITY : difference;
}

}  // namespace

GridTrace trace_run(const PreparedRun& run, Communicator& world, std::unique_ptr<Backend> backend,
                    const TraceOptions& options) {
  Training training(run, world, std::move(backend), {.progress = options.progress});
  training.model.initialise();
  if (auto* balance = training.step.term<ExpertBalance>())
    balance->routing().set_records(options.replay, options.record);
  const Context ctx = training.model.context();
  GridTrace trace;
  trace.grid = run->parallelism.grid();
  trace.device = training.model.backend().name();
  for (int step = 0; step < options.steps; ++step) {
    StepInput input = training.input(step);
    input.accept = [&](double, double) {
      if (step == 0) trace.parameter_norms = gradient_norms(ctx, training.optimizer);
      return true;
    };
    const StepResult result = training.step.run(ctx, input);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
  }
  trace.differing_replica = find_differing_replica(ctx, training.model.model());
  return trace;
}

Tolerance tolerance_of(DType dtype) {
  // f16 has three more bits than bf16.
  if (dtype == DType::f16) return {.loss = 2e-3, .norm = 2e-2, .parameter = 1e-2, .floor = 1e-2};
  if (dtype == DType::bf16) return {.loss = 1e-2, .norm = 1e-1, .parameter = 5e-2, .floor = 1e-2};
  return {.loss = 2e-6, .norm = 2e-5, .parameter = 1e-5, .floor = 1e-3};
}

Tolerance tolerance_between_devices(DType dtype) {
  const Tolerance grids = tolerance_of(dtype);
  if (is_half(dtype)) return grids;  // rounding to 16 bits outweighs the rest
  return {5 * grids.loss, 5 * grids.norm, 5 * grids.parameter, grids.floor};
}

GridComparison compare(const GridTrace& reference, const GridTrace& other,
                       const Tolerance& tolerance) {
  GridComparison c{
      .grid = other.grid, .device = other.device, .first_parameter = {}, .differing_replica = {}};
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    const double loss = relative(reference.losses[i], other.losses.at(i));
    if (loss > tolerance.loss && c.loss_step < 0) c.loss_step = static_cast<int>(i);
    c.loss = std::max(c.loss, loss);
    c.norm = std::max(c.norm, relative(reference.norms[i], other.norms.at(i)));
  }
  if (reference.parameter_norms.size() != other.parameter_norms.size())
    c.first_parameter = "none: the gradients of the first step overflow on one grid alone";
  double largest = 0;
  for (const auto& [name, norm] : reference.parameter_norms) largest = std::max(largest, norm);
  const std::size_t count =
      std::min(reference.parameter_norms.size(), other.parameter_norms.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [name, norm] = reference.parameter_norms[i];
    const double got = other.parameter_norms.at(i).second;
    if (norm == got) continue;  // perhaps both 0, as all of a step without targets
    const double difference = std::abs(norm - got) / std::max(norm, tolerance.floor * largest);
    c.parameter = std::max(c.parameter, difference);
    if (!(difference <= tolerance.parameter) && c.first_parameter.empty())
      c.first_parameter = fmt::format(
          "{}: its gradient norm is {:.6g}, on the reference grid {:.6g}", name, got, norm);
  }
  c.differing_replica = other.differing_replica;
  c.agrees = c.loss <= tolerance.loss && c.norm <= tolerance.norm && c.first_parameter.empty() &&
             c.differing_replica.empty();
  return c;
}

std::string comparison_table(const std::vector<GridComparison>& comparisons,
                             const Tolerance& tolerance) {
  std::string text = fmt::format("{:<16} {:>10} {:>10} {:>10}   largest relative difference\n",
                                 "x,y,z,data", "losses", "norms", "gradients");
  text += fmt::format("{:<16} {:>10.0e} {:>10.0e} {:>10.0e}   is allowed\n", "", tolerance.loss,
                      tolerance.norm, tolerance.parameter);
  for (const GridComparison& c : comparisons) {
    text += fmt::format("{:<16} {:>10.1e} {:>10.1e} {:>10.1e}   {}\n",
                        to_string(c.grid) + ' ' + c.device, c.loss, c.norm, c.parameter,
                        c.agrees ? "agrees" : "DIFFERS");
    if (c.agrees) continue;
    if (c.loss_step >= 0)
      text += fmt::format("  the loss differs from step {} on\n", c.loss_step + 1);
    if (!c.first_parameter.empty()) text += "  first parameter: " + c.first_parameter + "\n";
    if (!c.differing_replica.empty())
      text += "  replicas differ in their bits: " + c.differing_replica + "\n";
  }
  return text;
}

}  // namespace axonn
