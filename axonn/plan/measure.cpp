#include "axonn/plan/measure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/measure/benchmark.h"

namespace axonn {

MeasuredSteps measure_steps(const Config& config, Communicator& world,
                            const MeasureOptions& options) {
  AXONN_CHECK(options.steps > 0, "measure_steps: got ", options.steps, " steps, wanted at least 1");
  Training training(config, world, nullptr, {.data = false});
  LoadedModel& model = training.model;
  model.initialise();
  const Context ctx = model.context();
  StepInput input = made_up_input(model);
  input.lr = config.optimizer.lr;
  training.step.run(ctx, input);  // from the second step on, prefetching knows the order of blocks
  world.barrier("measure");
  double start = now_seconds();
  training.step.run(ctx, input);
  double first = now_seconds() - start;
  world.all_reduce(buffer(std::span(&first, 1)), "measure", ReduceOp::max).wait();
  const int count = std::clamp(static_cast<int>(options.seconds / first), 1, options.steps);
  model.settle();
  const WaitClock waits(model.grid());
  std::vector<double> timed;
  world.barrier("measure");
  start = now_seconds();
  for (int i = 0; i < count; ++i) {  // without pauses, as in training
    ++input.step;
    training.step.run(ctx, input);
    if (i + 1 == count) model.settle();
    const double end = now_seconds();
    timed.push_back(end - std::exchange(start, end));
  }
  const NamedSeconds waited = waits.by_kind();
  world.all_reduce(buffer(std::span<double>(timed)), "measure", ReduceOp::max).wait();
  MeasuredSteps measured{.step_s = spread_of(timed).median,
                         .waited_by = mean_waits(world, waited, static_cast<double>(timed.size())),
                         .memory_bytes = model.arena().stats().peak_bytes};
  for (const auto& [kind, seconds] : measured.waited_by) measured.waited_s += seconds;
  world.all_reduce(buffer(std::span(&measured.memory_bytes, 1)), "measure", ReduceOp::max).wait();
  return measured;
}

}  // namespace axonn
