#include "axonn/cli/plan_measure.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "axonn/base/log.h"
#include "axonn/plan/measure.h"
#include "axonn/train/launch.h"

namespace axonn {

namespace {

constexpr MeasureOptions kMeasured{.steps = 5, .seconds = 10};

std::string row(int place, const Plan& plan, const MeasuredSteps& measured) {
  return fmt::format("{:>2}  {:<16} {:>9.4f} {:>9.4f} {:>6.2f} {:>10.4f} {:>9.4f} {:>11} {:>11}\n",
                     place, to_string(plan.grid), plan.time.step_s, measured.step_s,
                     plan.time.step_s / measured.step_s, plan.time.exposed_s(), measured.waited_s,
                     format_bytes(plan.memory_bytes), format_bytes(measured.memory_bytes));
}

}  // namespace

void measure_plans(const PlanReport& report, int count) {
  const auto& plans = report.result.plans;
  if (plans.empty()) return;
  Config config = planned(report.config, plans.front());
  launch(config, [&](Communicator& world) {
    if (world.rank() == 0)
      std::cout << fmt::format("\n{:>2}  {:<16} {:>9} {:>9} {:>6} {:>10} {:>9} {:>11} {:>11}\n", "",
                               "x,y,z,data", "planned s", "measured", "ratio", "waits pl.",
                               "measured", "memory pl.", "measured");
    for (int i = 0; i < std::min(count, static_cast<int>(plans.size())); ++i) {
      const MeasuredSteps measured =
          measure_steps(planned(report.config, plans[i]), world, kMeasured);
      if (world.rank() == 0) std::cout << row(i + 1, plans[i], measured) << std::flush;
    }
    if (world.rank() == 0)
      std::cout << "Measured: the median of at most " << kMeasured.steps
                << " steps on the slowest rank; waits: mean of the ranks; memory: largest.\n";
  });
}

}  // namespace axonn
