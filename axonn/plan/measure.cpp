#include "axonn/plan/measure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/measure/benchmark.h"
#include "axonn/measure/dry_step.h"
#include "axonn/train/devices.h"
#include "axonn/train/own_cores.h"

namespace axonn {

namespace {

/// The mean over ranks and steps of the ranks' `sums` over so many steps. Collective.
NamedSeconds mean_of(Communicator& world, NamedSeconds sums, std::size_t steps) {
  for (auto& [kind, seconds] : sums) {
    world.all_reduce(buffer(std::span(&seconds, 1)), "measure").wait();
    seconds /= static_cast<double>(steps) * world.size();
  }
  std::erase_if(sums, [](const auto& wait) { return wait.second <= 0; });
  return sums;
}

}  // namespace

MeasuredSteps measure_steps(const Config& config, Communicator& world,
                            const MeasureOptions& options) {
  AXONN_CHECK(options.steps > 0, "measure_steps: got ", options.steps, " steps, wanted at least 1");
  const OwnCores cores(config, world);
  Session session(config, world, make_backend(config, world, cores.threads()), {.data = false});
  session.initialise();
  StepInput input = session.step_input(0);
  input.lr = config.optimizer.lr;
  input.tokens_of = [&](int) { return any_tokens(session.context(), config); };
  session.train_step(input);  // from the second step on, prefetching knows the order of blocks
  NamedSeconds waits = session.waited_by_kind();
  for (auto& [kind, seconds] : waits) seconds = 0;
  world.barrier("measure");
  double start = now_seconds();
  session.train_step(input);
  double first = now_seconds() - start;
  world.all_reduce(buffer(std::span(&first, 1)), "measure", ReduceOp::max).wait();
  const int count = std::clamp(static_cast<int>(options.seconds / first), 1, options.steps);
  session.settle();
  const NamedSeconds before = session.waited_by_kind();
  std::vector<double> timed;
  world.barrier("measure");
  start = now_seconds();
  for (int i = 0; i < count; ++i) {  // without pauses, as in training
    ++input.step;
    session.train_step(input);
    if (i + 1 == count) session.settle();
    const double end = now_seconds();
    timed.push_back(end - std::exchange(start, end));
  }
  const NamedSeconds after = session.waited_by_kind();
  for (std::size_t i = 0; i < waits.size(); ++i)
    waits[i].second = after[i].second - before[i].second;
  world.all_reduce(buffer(std::span<double>(timed)), "measure", ReduceOp::max).wait();
  MeasuredSteps measured{.step_s = spread_of(timed).median,
                         .waited_by = mean_of(world, std::move(waits), timed.size()),
                         .memory_bytes = session.arena().stats().peak_bytes};
  for (const auto& [kind, seconds] : measured.waited_by) measured.waited_s += seconds;
  world.all_reduce(buffer(std::span(&measured.memory_bytes, 1)), "measure", ReduceOp::max).wait();
  return measured;
}

}  // namespace axonn
