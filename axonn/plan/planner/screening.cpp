#include "axonn/plan/planner/screening.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
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

/// The part of the time of a single micro-batch that several take in any case: they hide more of
/// the collectives of parameters.
constexpr double kAlone = 0.95;

/// The part of the waits in it that several have in any case.
constexpr double kCertain = 0.9;

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
    const Prediction found = optimistic_step(one.grid, mode, steps);
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
  const PreparedRun run = on(grid, quickest_size(grid), modes_.front());
  try {
    if (!family.same_factors) {
      std::ranges::fill(least, optimistic_seconds_of_xy(run, machine_));
      return least;
    }
    const std::vector<Prediction> all = optimistic_on(family.grids, run, machine_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const GridShape& one = family.grids[i];
      least[i] = std::numeric_limits<double>::infinity();
      const std::vector<std::int64_t> of_one = space_.useful_sizes(one);
      for (const std::int64_t size : of_one)
        if (size == of_one.front() || fits(least_activations(on(one, size, RecomputeMode::full))))
          least[i] = std::min(least[i], kLike * least_s(all[i].time, batches(one, size), 0));
    }
  } catch (const UsageError&) {  // others of the family may be able to cut the layers
  }
  return least;
}

/// The least useful size of which y cuts the most: it cuts attention by sequences.
std::int64_t Screening::quickest_size(const GridShape& grid) const {
  const std::vector<std::int64_t> sizes = space_.useful_sizes(grid);
  if (options_.cost == CostModel::paper) return sizes.front();  // whose time is that of all
  return *std::ranges::max_element(
      sizes, {}, [&](std::int64_t size) { return std::gcd(size, std::int64_t{grid.y}); });
}

Prediction Screening::optimistic_step(const GridShape& grid, RecomputeMode mode,
                                      DrySteps& steps) const {
  const std::int64_t smallest = space_.useful_sizes(grid).front(), quickest = quickest_size(grid);
  Prediction found = cost(on(grid, quickest, mode), optimistic, steps);
  if (quickest != smallest) found.memory_bytes = estimate_memory(on(grid, smallest, mode), steps);
  return found;
}

/// Whether a collective, as StepTime names it, does not run for each micro-batch.
bool Screening::once_a_step(const std::string& collective) const {
  const bool gathers = collective == "z all_gather" || collective == "same experts all_gather";
  return collective.starts_with("data ") || collective.starts_with("world ") ||
         (gathers && run_->parallelism.keep_weights == KeepWeights::step);
}

/// About the least time of a step of so many micro-batches that computes so much again, from that
/// of one with all rows. Rows are computed and sent in any case, and weights are gathered over z
/// and their gradients reduced in each micro-batch, one after the other. What ranks are late grows
/// with the root of the computation before a wait, and the wait is at least as long.
double Screening::least_s(const StepTime& optimistic, double micro_batches,
                          double recomputing_s) const {
  if (options_.cost == CostModel::paper) return optimistic.step_s;
  double rows_s = 0, all_s = 0, gathers_s = 0;  // waits in each micro-batch, all, collectives
  for (const auto& [name, before_s] : optimistic.late_by) {
    const bool once = once_a_step(name);
    const double exposed_s = optimistic.exposed_by.at(name),
                 late_s = before_s * (once ? 1 / std::sqrt(micro_batches)
                                           : std::max(kCertain * std::sqrt(micro_batches), 1.0));
    const bool of_rows = is_of_rows(std::string_view(name).substr(0, name.rfind(' ')));
    rows_s += of_rows ? std::max(late_s, before_s + kCertain * exposed_s) : late_s;
    all_s += once ? late_s + exposed_s : std::max(late_s, before_s + exposed_s);
    if (!of_rows)
      gathers_s = std::max(gathers_s, (once ? 1 : micro_batches) * optimistic.alone_by.at(name));
  }
  return std::max({optimistic.compute_s + std::max(recomputing_s, rows_s), gathers_s,
                   kAlone * (optimistic.compute_s + all_s)});
}

/// Of each useful size, with the recomputation that it needs; infinite if it cannot fit.
std::vector<double> Screening::least_s(const Screened& one, const Prediction& optimistic) const {
  const std::vector<std::int64_t> sizes = space_.useful_sizes(one.grid);
  const auto kept = [&](std::int64_t size, RecomputeMode mode) {
    return least_activations(on(one.grid, size, mode));
  };
  std::vector<double> least;
  for (const std::int64_t size : sizes) {
    const std::int64_t bytes = optimistic.memory_bytes + kept(size, RecomputeMode::none) -
                               kept(sizes.front(), RecomputeMode::none);
    const bool may_fit = fits(one.state_bytes + kept(size, RecomputeMode::full));
    least.push_back(
        may_fit ? least_s(optimistic.time, batches(one.grid, size),
                          recomputing_s(on(one.grid, size, RecomputeMode::none), bytes - budget_))
                : std::numeric_limits<double>::infinity());
  }
  return least;
}

/// Micro-batches of a step.
double Screening::batches(const GridShape& grid, std::int64_t size) const {
  return static_cast<double>(batch_share(space_.share(grid), size));
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
