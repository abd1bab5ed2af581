#include "axonn/app/start/start_run.h"

#include <algorithm>

#include "axonn/app/start/auto_grid.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/planner/machine/link_rates.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

/// The ranks that choose an automatic grid.
ParallelismConfig on_all_devices(const Config& config) {
  ParallelismConfig all = config.parallelism;
  const int threads = std::max(1, static_cast<int>(config.training.threads)),
            gpus = static_cast<int>(gpus_for(all.device).size());
  all.named_grid.clear();
  all.data = gpus > 0 ? gpus : std::max(1, usable_core_count() / threads);
  return all;
}

}  // namespace

PreparedRun prepare_run(const Config& config, const Origins& origins) {
  return within_budget(prepared(with_stored_model(config, origins)));
}

PreparedRun agree_on(const PreparedRun& run, Communicator& world) {
  const ParallelismConfig& p = run->parallelism;
  if (!p.machine.empty())
    use_link_rates(world, p, world.rank() == 0 ? read_machine(p.machine) : Machine{});
  return with_recomputation_of_rank_0(run, world);
}

void start_run(const PreparedRun& run,
               const std::function<void(const PreparedRun& agreed, Communicator& world)>& body) {
  launch(run->parallelism, [&](Communicator& world) { body(agree_on(run, world), world); });
}

void start_run_on_any_grid(
    const PreparedRun& run, const std::function<void(const std::string& line)>& report,
    const ProgressTarget& progress,
    const std::function<void(const PreparedRun& agreed, Communicator& world)>& body) {
  if (!run->parallelism.automatic()) return start_run(run, body);
  launch(on_all_devices(run.config()), [&](Communicator& world) {
    const PreparedRun chosen = within_budget(with_chosen_grid(run, world, report, progress));
    body(with_recomputation_of_rank_0(chosen, world), world);
  });
}

}  // namespace axonn
