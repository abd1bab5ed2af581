#include "axonn/plan/measure.h"

#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/plan/probe_tokens.h"
#include "axonn/train/benchmark.h"
#include "axonn/train/session.h"

namespace axonn {

MeasuredSteps measure_steps(const Config& config, Communicator& world,
                            const MeasureOptions& options) {
  AXONN_CHECK(options.steps > 0 && options.warmup >= 0, "measure_steps: ", options.warmup, " and ",
              options.steps, " steps; one at least is timed");
  Session session(config, world, make_cpu_backend(compute_threads(config)), {.data = false});
  session.initialise();
  StepInput input = session.step_input(0);
  input.lr = config.optimizer.lr;
  input.tokens_of = [&](int) { return any_tokens(session.context(), config); };
  std::vector<double> timed;
  double spent = 0;  // the same on every rank
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    if (!timed.empty() && spent > options.seconds) break;
    input.step = i;
    world.barrier("measure");
    const double start = now_seconds();
    session.train_step(input);
    double seconds = now_seconds() - start;
    world.all_reduce(buffer(std::span(&seconds, 1)), "measure", ReduceOp::max).wait();
    spent += seconds;
    if (i >= options.warmup) timed.push_back(seconds);
  }
  MeasuredSteps measured{.memory_bytes = session.arena().stats().peak_bytes};
  world.all_reduce(buffer(std::span(&measured.memory_bytes, 1)), "measure", ReduceOp::max).wait();
  measured.step_s = spread_of(timed).median;
  return measured;
}

}  // namespace axonn
