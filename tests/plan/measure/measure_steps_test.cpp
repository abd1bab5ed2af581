#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/benchmark.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

using namespace axonn;

namespace {

Config measured_config(const GridShape& grid) {
  Config config;
  config.model = {.layers = 2, .hidden = 32, .heads = 4, .vocab = 64};
  config.training = {.steps = 1, .seq_len = 8, .global_batch = 4};
  config.training.threads = 1;
  config.optimizer.lr = 1e-3;
  config.data.synthetic = 20'000;
  config.parallelism.set_grid(grid);
  return resolved(config);
}

std::vector<MeasuredSteps> measured(const Config& config, const MeasureOptions& options) {
  std::vector<MeasuredSteps> steps(config.parallelism.grid().ranks());
  run_ranks(static_cast<int>(steps.size()), [&](Communicator& world) {
    steps[world.rank()] = measure_steps(prepared(config), world, options);
  });
  return steps;
}

}  // namespace

TEST(Measure, AllRanksGetTheSameFiguresAndThePeakIsThePlansToTheByte) {
  for (const GridShape grid :
       {GridShape{1, 1, 1, 1}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    const Config config = measured_config(grid);
    const auto steps = measured(config, {.steps = 2});
    for (const MeasuredSteps& one : steps) {
      EXPECT_EQ(one.step_s, steps.front().step_s);
      EXPECT_EQ(one.waited_s, steps.front().waited_s);
      EXPECT_EQ(one.memory_bytes, dry_step(prepared(config), 0).memory.peak_bytes);
    }
    EXPECT_GT(steps.front().step_s, 0);
    EXPECT_EQ(steps.front().waited_by.empty(), grid.ranks() == 1);
  }
}

TEST(Measure, ThrowsForZeroStepsAndTimesOneStepEvenWithoutTime) {
  const Config config = measured_config({});
  EXPECT_THROW(measured(config, {.steps = 0}), Error);
  EXPECT_GT(measured(config, {.steps = 5, .seconds = 0}).front().step_s, 0);
}
