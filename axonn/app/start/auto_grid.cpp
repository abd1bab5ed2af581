#include "axonn/app/start/auto_grid.h"

#include <array>
#include <optional>

#include <fmt/format.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/machine/link_rates.h"
#include "axonn/plan/planner/machine/probe.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/plan/planner/search.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

using Report = std::function<void(const std::string& line)>;

/// The settings of config that a plan chooses, without time and memory.
Plan plan_of(const Config& config) {
  Plan plan{.grid = config.parallelism.grid(),
            .micro_batch = config.training.micro_batch,
            .keep_weights = config.parallelism.keep_weights,
            .hold_weights = config.rl.hold_weights};
  plan.set_recomputation(config.activation_checkpoint);
  return plan;
}

/// The choice of the run that this one resumes, if it applies to as many ranks.
std::optional<Plan> earlier_choice(const Config& config, int ranks) {
  const std::string resumed = resume_path(config);
  if (resumed.empty()) return std::nullopt;
  Config earlier = stored_config(CheckpointReader(resumed));
  const std::int64_t coordinates = batch_coordinates(earlier.parallelism.grid());
  if (earlier.training.micro_batch == 0)
    earlier.training.micro_batch = largest_micro_batch(earlier.training, coordinates);
  const std::int64_t micro = earlier.training.micro_batch;
  if (earlier.parallelism.grid().ranks() != ranks || micro == 0 ||
      batch_share(config.training.global_batch, coordinates) % micro != 0)
    return std::nullopt;
  Plan plan = plan_of(earlier);
  if (config.parallelism.keep_weights != KeepWeights::none)
    plan.keep_weights = config.parallelism.keep_weights;
  plan.hold_weights = earlier.rl.hold_weights && config.rl.hold_weights;
  return plan;
}

Plan best_choice(const PreparedRun& run, const Machine& machine, Communicator& world,
                 const Report& report, const ProgressTarget& progress) {
  const int ranks = world.size();
  const Config& config = run.config();
  SearchOptions options{
      .devices = ranks, .progress = progress, .note_progress = [&] { world.note_progress(); }};
  if (config.parallelism.context > 1) options.fixed.context = config.parallelism.context;
  if (config.parallelism.experts > 1) options.fixed.experts = config.parallelism.experts;
  if (config.activation_checkpoint.mode != RecomputeMode::none)
    options.recompute = config.activation_checkpoint.mode;
  const SearchResult found = search(run, machine, options);
  if (found.plans.empty())
    refuse("[parallelism] grid = \"auto\": no grid of ", ranks, " ranks fits into the ",
           format_bytes(static_cast<std::int64_t>(machine.usable_bytes())), " of a device",
           found.smallest ? concat("; the smallest, ", with_factors(found.smallest->grid),
                                   ", takes ", format_bytes(found.smallest->memory_bytes))
                          : std::string());
  Plan best = found.plans.front();
  if (!best.recompute_blocks) best.recompute_blocks = config.activation_checkpoint.blocks;
  if (!best.keep_weights) best.keep_weights = config.parallelism.keep_weights;
  report(fmt::format("grid: {}, the best of {} grids; predicted {:.3g} s and {}",
                     with_factors(best.grid), found.grids, best.time.step_s,
                     format_bytes(best.memory_bytes)));
  if (best.grid.z > 1 && best.keep_weights != KeepWeights::none)
    report(fmt::format("grid: parallelism.keep_weights = \"{}\"", name_of(*best.keep_weights)));
  if (best.hold_weights.value_or(true) != config.rl.hold_weights)
    report("grid: rl.hold_weights = false");
  if (found.plans.size() > 1)
    report(fmt::format("grid: second best {}, {:.3g} s", with_factors(found.plans[1].grid),
                       found.plans[1].time.step_s));
  return best;
}

/// The machine of the file that the config names, on rank 0, or what several ranks measure.
Machine machine_of(const Config& config, Communicator& world, const Report& report,
                   const ProgressTarget& progress) {
  const bool first = world.rank() == 0;
  if (!config.parallelism.machine.empty())
    return first ? read_machine(config.parallelism.machine) : Machine{};
  if (world.size() == 1) return {};
  if (first) report("grid: measuring this machine");
  Config all = config;
  all.parallelism.data = world.size();
  const OwnCores cores(all, world);
  return probe(world, {.threads = cores.threads(),
                       .device = config.parallelism.device,
                       .transport = config.parallelism.transport,
                       .disk = config.offload.dir,
                       .quick = true,
                       .progress = progress});
}

/// Sends rank 0's grid, micro-batch, and kept and held weights to all ranks.
Plan broadcast(Communicator& world, const Plan& mine) {
  const auto keep = static_cast<std::int64_t>(mine.keep_weights.value_or(KeepWeights::none));
  std::array<std::int64_t, 9> numbers = {mine.grid.x,
                                         mine.grid.y,
                                         mine.grid.z,
                                         mine.grid.data,
                                         mine.grid.context,
                                         mine.grid.experts,
                                         mine.micro_batch,
                                         keep,
                                         mine.hold_weights ? *mine.hold_weights : 2};
  world.broadcast(buffer(std::span<std::int64_t>(numbers)), 0, "grid").wait();
  const auto extent = [&](int i) { return static_cast<int>(numbers[i]); };
  Plan plan = mine;
  plan.grid = {extent(0), extent(1), extent(2), extent(3), extent(4), extent(5)};
  plan.micro_batch = numbers[6];
  plan.keep_weights = static_cast<KeepWeights>(numbers[7]);
  if (numbers[8] < 2) plan.hold_weights = numbers[8] == 1;
  return plan;
}

}  // namespace

PreparedRun with_chosen_grid(const PreparedRun& run, Communicator& world, const Report& report,
                             const ProgressTarget& progress) {
  AXONN_CHECK(run->parallelism.automatic(), "with_chosen_grid: wanted grid = \"auto\", got ",
              to_string(run->parallelism.grid()));
  const PreparedRun free = run.with([](Config& one) { one.parallelism.named_grid.clear(); });
  const Config& config = free.config();
  const bool first = world.rank() == 0;
  { const RunFolder refuses_first(config, world); }
  const Machine machine = machine_of(config, world, report, progress);
  // A resumed run, too, chooses its collectives by them.
  if (world.size() > 1) use_link_rates(world, config.parallelism, machine);
  const DeviceKind device =
      world.size() > 1 ? choose_device(config, world).device : config.parallelism.device;
  std::optional<Plan> choice = first ? earlier_choice(config, world.size()) : std::nullopt;
  if (choice) {
    report(fmt::format("grid: {}, from the run that this one resumes", with_factors(choice->grid)));
  } else if (first && world.size() == 1) {
    choice = plan_of(config);
    choice->grid = {};
  } else if (first) {
    const PreparedRun there = free.with([&](Config& one) { one.parallelism.device = device; });
    choice = best_choice(there, machine, world, report, progress);
  }
  const PreparedRun chosen = planned(free, broadcast(world, choice.value_or(plan_of(config))));
  return prepared(with_recomputation_of_rank_0(chosen, world).config());
}

}  // namespace axonn
