#include "axonn/plan/measure.h"

#include <utility>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/plan/probe_tokens.h"
#include "axonn/train/benchmark.h"
#include "axonn/train/own_cores.h"

namespace axonn {

namespace {

/// `sums` over so many steps of every rank, as one of the mean rank's. Collective.
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
  AXONN_CHECK(options.steps > 0, "measure_steps: ", options.steps, " steps; one at least is timed");
  const OwnCores cores(config, world);
  Session session(config, world, make_cpu_backend(cores.threads()), {.data = false});
  session.initialise();
  StepInput input = session.step_input(0);
  input.lr = config.optimizer.lr;
  input.tokens_of = [&](int) { return any_tokens(session.context(), config); };
  session.train_step(input);  // from the second on it is known which block comes next
  NamedSeconds waits = session.waited_by_kind();
  for (auto& [kind, seconds] : waits) seconds = 0;
  std::vector<double> timed;
  for (double spent = 0; std::ssize(timed) < options.steps && spent <= options.seconds;) {
    ++input.step;
    world.barrier("measure");
    const NamedSeconds before = session.waited_by_kind();
    const double start = now_seconds();
    session.train_step(input);
    timed.push_back(now_seconds() - start);
    const NamedSeconds after = session.waited_by_kind();
    for (std::size_t i = 0; i < waits.size(); ++i)
      waits[i].second += after[i].second - before[i].second;
    world.all_reduce(buffer(std::span(&timed.back(), 1)), "measure", ReduceOp::max).wait();
    spent += timed.back();
  }
  MeasuredSteps measured{.step_s = spread_of(timed).median,
                         .waited_by = mean_of(world, std::move(waits), timed.size()),
                         .memory_bytes = session.arena().stats().peak_bytes};
  for (const auto& [kind, seconds] : measured.waited_by) measured.waited_s += seconds;
  world.all_reduce(buffer(std::span(&measured.memory_bytes, 1)), "measure", ReduceOp::max).wait();
  return measured;
}

}  // namespace axonn
