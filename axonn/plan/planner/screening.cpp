#include "axonn/plan/planner/screening.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/planner/paper_model.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

namespace {

/// Rows of a micro-batch whose recomputation is taken as typical.
constexpr std::int64_t kTypicalRows = 16384;

/// The part of the time that recomputation is expected to take which it takes in any case.
constexpr double kSure = 0.9;

/// The part of the time of a step on another grid of the family that is certain.
constexpr double kLike = 0.98;

}  // namespace

Screening::Screening(const PreparedRun& run, const Machine& machine, const SearchOptions& options,
                     const SearchSpace& space)
    : run_(run),
      machine_(machine),
      options_(options),
      space_(space),
      budget_(static_cast<std::int64_t>(machine.usable_bytes())),
      budgeted_(!options.recompute && options.cost == CostModel::simulated) {
  if (options.recompute) modes_ = {*options.recompute};
  if (budgeted_) modes_ = {RecomputeMode::none};
  const std::int64_t budget = run->activation_checkpoint.budget;
  if (budget > 0) budget_ = std::min(budget, budget_);
}

PreparedRun Screening::on(const GridShape& grid, std::int64_t micro_batch,
                          RecomputeMode mode) const {
  return planned(run_, {.grid = grid, .micro_batch = micro_batch, .recompute = mode});
}

Prediction Screening::cost(const PreparedRun& run, Simulated* simulated, DrySteps& steps) const {
  options_.note_progress();
  if (options_.cost == CostModel::simulated) return simulated(run, machine_, steps);
  const std::int64_t sequences = run->training.global_batch + padding_sequences(run.config());
  const PaperSeconds paper =
      paper_seconds(run->model,
                    {.tokens = sequences * run->training.seq_len,
                     .recompute = run->activation_checkpoint.mode == RecomputeMode::full},
                    machine_, run->parallelism.grid());
  return {.time = {.step_s = paper.total(),
                   .exposed_by = {{"z all_gather", paper.gather_z},
                                  {"z reduce_scatter", paper.scatter_z},
                                  {"y all_reduce", paper.reduce_y},
                                  {"x all_reduce", paper.reduce_x},
                                  {"data all_reduce", paper.reduce_data}}},
          .memory_bytes = simulated == static_cast<Simulated*>(predict)
                              ? steps.step(run).memory.peak_bytes
                              : estimate_memory(run, steps)};
}

Screened Screening::screened(const GridShape& grid) const {
  Screened one{.grid = grid};
  const auto micros = space_.useful_sizes(grid);
  if (micros.empty()) {
    const std::int64_t micro = options_.micro_batch, chunks = run_->parallelism.chunks;
    one.reason =
        concat("grid ", with_factors(grid), " cannot cut the batch of ",
               run_->training.global_batch, " sequences into ", batch_coordinates(grid),
               " parts over z and data", micro > 0 ? concat(", with micro-batches of ", micro) : "",
               chunks > 1 ? concat(", with ", chunks, " chunks each") : "");
    return one;
  }
  try {
    screen(micros.front(), one);
  } catch (const UsageError& error) {  // the grid cannot cut a layer
    one.reason = error.what();
  }
  return one;
}

/// Fills in the rest. Throws UsageError if the grid cannot cut the model.
void Screening::screen(std::int64_t micro_batch, Screened& one) const {
  one.least = {.grid = one.grid, .micro_batch = micro_batch, .recompute = RecomputeMode::full};
  one.least.memory_bytes = one.state_bytes = state_bytes(planned(run_, one.least));
  one.cuts = true;
  DrySteps steps;
  for (const RecomputeMode mode : modes_) {
    if (!fits(one.least.memory_bytes)) continue;
    const Prediction found = cost(on(one.grid, micro_batch, mode), optimistic, steps);
    one.least.memory_bytes = found.memory_bytes;
    if (budgeted_ && !fits(found.memory_bytes))
      one.least.memory_bytes = one.smallest_bytes =
          estimate_memory(on(one.grid, micro_batch, RecomputeMode::full), steps);
    if (!fits(one.least.memory_bytes)) continue;
    one.fits = true;
    one.least_s = least_s(one, found);
    return;
  }
}

std::vector<double> Screening::least_s(const GridFamily& family) const {
  const GridShape& grid = space_.least_of(family);
  const std::vector<std::int64_t> sizes = space_.useful_sizes(grid);
  std::vector<double> least(family.grids.size(), 0);
  if (sizes.empty()) return least;
  options_.note_progress();
  const PreparedRun run = on(grid, sizes.front(), modes_.front());
  try {
    if (!family.same_factors) {
      std::ranges::fill(least, optimistic_seconds_of_xy(run, machine_));
      return least;
    }
    const std::vector<Prediction> all = optimistic_on(family.grids, run, machine_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const GridShape& one = family.grids[i];
      std::int64_t largest = 1;
      for (const std::int64_t size : space_.useful_sizes(one))
        if (fits(least_activations(on(one, size, RecomputeMode::full)))) largest = size;
      const auto times = static_cast<double>(batch_share(space_.share(one), largest));
      least[i] = kLike * std::max(all[i].time.step_s, times * gathering_s(all[i].time));
    }
  } catch (const UsageError&) {  // others of the family may be able to cut the layers
  }
  return least;
}

/// The time of gathering weights, or of reducing gradients, over z for each micro-batch.
double Screening::gathering_s(const StepTime& time) const {
  double each_s = 0;
  for (const char* const collective : {"z all_gather", "z reduce_scatter"}) {
    const auto found = time.alone_by.find(collective);
    const bool once = run_->parallelism.keep_weights == KeepWeights::step &&
                      collective == std::string_view("z all_gather");
    if (found != time.alone_by.end() && !once) each_s = std::max(each_s, found->second);
  }
  return each_s;
}

/// About the least time of a step on this grid: that of a single micro-batch, of its computation
/// with the recomputation that each size needs, and of gathering and reducing for each
/// micro-batch.
double Screening::least_s(const Screened& one, const Prediction& optimistic) const {
  const StepTime& time = optimistic.time;
  const std::vector<std::int64_t> sizes = space_.useful_sizes(one.grid);
  const double each_s = gathering_s(time);
  double least = std::numeric_limits<double>::infinity();
  const auto kept = [&](std::int64_t size, RecomputeMode mode) {
    return least_activations(on(one.grid, size, mode));
  };
  for (const std::int64_t size : sizes) {
    if (!fits(one.state_bytes + kept(size, RecomputeMode::full))) continue;
    const std::int64_t bytes = optimistic.memory_bytes + kept(size, RecomputeMode::none) -
                               kept(sizes.front(), RecomputeMode::none);
    const double compute_s =
        time.compute_s + recomputing_s(on(one.grid, size, RecomputeMode::none), bytes - budget_);
    least = std::min(
        least, std::max({time.step_s, compute_s,
                         each_s * static_cast<double>(batch_share(space_.share(one.grid), size))}));
  }
  return least;
}

/// A step of one device, which need not fit.
PreparedRun Screening::typical() const {
  const std::int64_t batch = run_->training.global_batch;
  Plan plan{.grid = {}, .micro_batch = batch};
  for (std::int64_t size = batch; size * run_->training.seq_len > kTypicalRows && size > 1;)
    if (batch % --size == 0 && size % run_->parallelism.chunks == 0) plan.micro_batch = size;
  return on(plan.grid, plan.micro_batch, RecomputeMode::none);
}

double Screening::recomputing_s(const PreparedRun& run, std::int64_t missing) const {
  if (missing <= 0 || !budgeted_ || !run_->parallelism.sequence_parallel) return 0;
  std::call_once(typical_found_,
                 [&] { typical_.emplace(typical(), machine_, RecomputeSets::nested); });
  return kSure * typical_->least_seconds(run, missing);
}

std::int64_t Screening::least_activations(const PreparedRun& run) {
  const ParallelismConfig& p = run->parallelism;
  const ModelConfig& m = run->model;
  const RecomputeConfig& recompute = run->activation_checkpoint;
  const bool all = recompute.mode == RecomputeMode::none && recompute.blocks == 0;
  const std::int64_t dense = m.ffn > 0 ? m.ffn : m.expert_ffn,
                     ffn = m.experts > 0 ? std::min(dense, m.experts_per_token * m.expert_ffn)
                                         : dense;
  return run->training.micro_batch * run->training.seq_len * m.layers *
         (all ? 3 * m.hidden + ffn : m.hidden) * bytes_of(run->training.dtype) /
         (p.x * p.y * p.context);
}

}  // namespace axonn
