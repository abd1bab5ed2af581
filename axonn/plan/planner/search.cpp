#include "axonn/plan/planner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/paper_model.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/plan/planner/search_space.h"
#include "axonn/use/rewards/rollout_sampler.h"

namespace axonn {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The optimistic time may exceed the true one, because a single micro-batch overlaps its sum over
/// data worse than several do. The largest excess seen, on small models, is 5 %.
constexpr double kSlack = 1.08;

/// estimate() may exceed predict() by about so much, see the tests of both.
constexpr double kClose = 1.05;

/// Grids that are screened, whose plans are estimated, and whose best plan is predicted with all
/// blocks at the same time, on as many threads as there are cores. Fixed, so that a plan does not
/// depend on the number of cores.
constexpr std::size_t kScreenedAtOnce = 64, kEstimatedAtOnce = 8, kPredictedAtOnce = 2;

double seconds_of(const Plan& plan) { return plan.time.step_s; }

/// The part of a step's time below which weights are kept: what saves less is not worth the memory.
constexpr double kWorthKeeping = 0.98;

/// Rows of a micro-batch whose recomputation is taken as typical.
constexpr std::int64_t kTypicalRows = 16384;

/// The part of the time that recomputation is expected to take which it takes in any case.
constexpr double kSure = 0.9;

/// A plan with its estimated time and memory.
struct Estimated {
  Plan plan;
  double least_s = 0;  ///< if what is computed again hides communication
  /// If the plan needs some recomputation: its levels, and about the least that fits.
  std::optional<RecomputeLevels> levels = {};
  std::int64_t level = 0;

  double seconds() const { return seconds_of(plan); }
};

/// What is known of a grid, in this order; each takes longer to find than the one before.
enum class Stage : std::uint8_t {
  screened,   ///< the least time of a step
  estimated,  ///< the plans, with estimates
  refined     ///< these estimates also have the recomputation that fits
};

/// A grid that can cut the model and fits in some mode.
struct Candidate {
  GridShape grid;
  Prediction optimistic = {};       ///< of the first mode that fits
  double least_s = kNever;          ///< about the least time of a step
  std::int64_t state_bytes = 0;     ///< in memory at any time
  std::int64_t smallest_bytes = 0;  ///< of the smallest micro-batch, all recomputed; 0: unknown
  Stage stage = Stage::screened;
  std::vector<Estimated> plans = {};          ///< by time, once they are estimated
  std::shared_ptr<DrySteps> steps = nullptr;  ///< of these

  /// No plan of this grid is faster.
  double bound_s() const {
    if (stage == Stage::screened) return least_s / kSlack;
    double least = kNever;
    for (const Estimated& one : plans) least = std::min(least, one.least_s);
    return least / kClose;
  }
};

class Search {
 public:
  Search(const PreparedRun& run, const Machine& machine, const SearchOptions& options)
      : run_(run), machine_(machine), options_(options), space_(run_, machine_, options_) {
    if (options.recompute) modes_ = {*options.recompute};
    if (budgeted_) modes_ = {RecomputeMode::none};
    const std::int64_t budget = run->activation_checkpoint.budget;
    if (budget > 0) budget_ = std::min(budget, budget_);
  }

  SearchResult run() {
    screen();
    sort_candidates();
    for (Candidate& one : candidates_) open_.push_back(&one);
    ProgressLine line(options_.progress, "simulating", "grids");
    while (!open_.empty()) {
      const double limit_s = this->limit_s();
      // How many are left is known only if there are plans to compare with.
      const auto left = std::ranges::count_if(
          open_, [&](const Candidate* one) { return one->bound_s() <= limit_s; });
      const std::int64_t done = result_.simulated;
      line(done, limit_s < kNever ? done + left : 0);
      if (left == 0) break;
      take_most_promising(limit_s);
    }
    if (!result_.plans.empty()) result_.smallest.reset();
    const bool free = run_->parallelism.keep_weights == KeepWeights::none;
    if (free && options_.keep_weights && options_.cost == CostModel::simulated) keep_weights();
    return std::move(result_);
  }

 private:
  bool fits(std::int64_t bytes) const { return bytes <= budget_; }

  PreparedRun on(const GridShape& grid, std::int64_t micro_batch, RecomputeMode mode) const {
    return planned(run_, {.grid = grid, .micro_batch = micro_batch, .recompute = mode});
  }

  /// simulated(): predict(), estimate() or optimistic(). With the paper's model, its time, and the
  /// memory of predict() or of estimate().
  using Simulated = Prediction(const PreparedRun&, const Machine&, DrySteps&);
  Prediction cost(const PreparedRun& run, Simulated* simulated, DrySteps& steps) const {
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

  /// A grid after the cheap checks.
  struct Screened {
    bool cuts = false;  ///< it can cut model and batch
    std::optional<Candidate> candidate;
    Plan least = {};     ///< if it does not fit: the plan with the least memory
    std::string reason;  ///< if it cannot cut them
  };

  void screen() {
    const std::vector<GridShape> grids = space_.grids();
    std::vector<Screened> all(grids.size());
    ProgressLine line(options_.progress, "estimating", "grids");
    for (std::size_t first = 0; first < grids.size(); first += kScreenedAtOnce) {
      line(static_cast<std::int64_t>(first), std::ssize(grids));
      parallel_for(std::min(kScreenedAtOnce, grids.size() - first), threads_,
                   [&](std::size_t i) { all[first + i] = screened(grids[first + i]); });
    }
    std::string reason;
    result_.grids = static_cast<int>(grids.size());
    for (const Screened& one : all) {
      if (reason.empty()) reason = one.reason;
      if (!one.cuts) continue;
      ++result_.cut;
      if (one.candidate) {
        ++result_.fit;
        candidates_.push_back(*one.candidate);
      } else if (!result_.smallest || one.least.memory_bytes < result_.smallest->memory_bytes) {
        result_.smallest = one.least;
      }
    }
    if (result_.cut == 0)
      refuse("none of the ", result_.grids, " grids of ", options_.devices,
             " devices that strategy ", kStrategies[static_cast<int>(options_.strategy)],
             " and the settings allow can cut this model and batch",
             reason.empty() ? "" : "; for example: ", reason);
  }

  /// By the least time of a step.
  void sort_candidates() {
    const auto short_of_memory = [&](const Candidate& one) {
      return !fits(one.optimistic.memory_bytes);
    };
    if (budgeted_ && run_->parallelism.sequence_parallel &&
        std::ranges::any_of(candidates_, short_of_memory))
      typical_.emplace(typical(), machine_, RecomputeSets::nested);
    for (Candidate& one : candidates_) one.least_s = least_s(one);
    std::ranges::stable_sort(candidates_, {}, &Candidate::least_s);
  }

  /// About the least time of a step on this grid: that of a single micro-batch, of its computation
  /// with the recomputation that each size needs, and of gathering and reducing for each
  /// micro-batch.
  double least_s(const Candidate& one) const {
    const StepTime& time = one.optimistic.time;
    const std::vector<std::int64_t> sizes = space_.useful_sizes(one.grid);
    double each_s = 0, least = kNever;
    for (const char* const collective : {"z all_gather", "z reduce_scatter"}) {
      const auto found = time.alone_by.find(collective);
      const bool once = run_->parallelism.keep_weights == KeepWeights::step &&
                        collective == std::string_view("z all_gather");
      if (found != time.alone_by.end() && !once) each_s = std::max(each_s, found->second);
    }
    const auto kept = [&](std::int64_t size, RecomputeMode mode) {
      return least_activations(on(one.grid, size, mode));
    };
    for (const std::int64_t size : sizes) {
      if (!fits(one.state_bytes + kept(size, RecomputeMode::full))) continue;
      const std::int64_t bytes = one.optimistic.memory_bytes + kept(size, RecomputeMode::none) -
                                 kept(sizes.front(), RecomputeMode::none);
      const double compute_s =
          time.compute_s +
          kSure * recomputing_s(on(one.grid, size, RecomputeMode::none), bytes - budget_);
      least = std::min(
          least,
          std::max({time.step_s, compute_s,
                    each_s * static_cast<double>(batch_share(space_.share(one.grid), size))}));
    }
    return least;
  }

  /// A step of one device, which need not fit.
  PreparedRun typical() const {
    const std::int64_t batch = run_->training.global_batch;
    Plan plan{.grid = {}, .micro_batch = batch};
    for (std::int64_t size = batch; size * run_->training.seq_len > kTypicalRows && size > 1;)
      if (batch % --size == 0 && size % run_->parallelism.chunks == 0) plan.micro_batch = size;
    return on(plan.grid, plan.micro_batch, RecomputeMode::none);
  }

  /// About the least time that a step takes longer if it lacks so many bytes.
  double recomputing_s(const PreparedRun& run, std::int64_t missing) const {
    return typical_ && missing > 0 ? typical_->least_seconds(run, missing) : 0;
  }

  /// Lets the plans keep gathered weights where that fits and saves enough time.
  void keep_weights() {
    auto& plans = result_.plans;
    parallel_for(plans.size(), threads_, [&](std::size_t i) { plans[i] = keeping(plans[i]); });
    std::ranges::stable_sort(plans, {}, seconds_of);
  }

  /// The plan with the memory of answers that the run writes, which may not fit.
  std::optional<Plan> with_rollouts(std::optional<Plan> plan) const {
    if (!plan || !may_write_rollouts(run_->rl)) return plan;
    const auto cost_of = [&](bool holds) {
      plan->hold_weights = holds;
      return rollout_cost(planned(run_, *plan), machine_);
    };
    RolloutCost best = cost_of(run_->rl.hold_weights);
    if (best.holds && plan->grid.z > 1)
      if (const RolloutCost other = cost_of(false);
          !fits(best.memory_bytes) || other.seconds < best.seconds)
        best = other;
    plan->hold_weights = best.holds;
    plan->rollout_bytes = best.memory_bytes;
    plan->memory_bytes = std::max(plan->memory_bytes, best.memory_bytes);
    return plan;
  }

  Plan keeping(const Plan& plan) const {
    Plan best = plan;
    if (plan.grid.z == 1) return best;
    for (const KeepWeights keep : {KeepWeights::micro_batch, KeepWeights::step}) {
      if (keep == KeepWeights::step && run_->training.cuda_graph) continue;
      Plan kept = plan;
      kept.keep_weights = keep;
      DrySteps steps;
      const Prediction found = cost(planned(run_, kept), predict, steps);
      kept.time = found.time;
      kept.memory_bytes = found.memory_bytes;
      kept = *with_rollouts(kept);
      const double most_s = std::min(kWorthKeeping * seconds_of(plan), seconds_of(best));
      if (fits(kept.memory_bytes) && seconds_of(kept) < most_s) best = kept;
    }
    return best;
  }

  Screened screened(const GridShape& grid) const {
    Screened one;
    const auto micros = space_.useful_sizes(grid);
    if (micros.empty()) {
      const std::int64_t micro = options_.micro_batch, chunks = run_->parallelism.chunks;
      one.reason = concat("grid ", with_factors(grid), " cannot cut the batch of ",
                          run_->training.global_batch, " sequences into ", batch_places(grid),
                          " parts over z and data",
                          micro > 0 ? concat(", with micro-batches of ", micro) : "",
                          chunks > 1 ? concat(", with ", chunks, " chunks each") : "");
      return one;
    }
    try {
      screen(grid, micros.front(), one);
    } catch (const UsageError& error) {  // the grid cannot cut a layer
      one.reason = error.what();
    }
    return one;
  }

  void screen(const GridShape& grid, std::int64_t micro_batch, Screened& one) const {
    one.least = {.grid = grid, .micro_batch = micro_batch, .recompute = RecomputeMode::full};
    const std::int64_t state = state_bytes(planned(run_, one.least));
    one.least.memory_bytes = state;
    one.cuts = true;
    DrySteps steps;
    for (const RecomputeMode mode : modes_) {
      if (!fits(one.least.memory_bytes)) continue;
      const Prediction found = cost(on(grid, micro_batch, mode), optimistic, steps);
      one.least.memory_bytes = found.memory_bytes;
      std::int64_t smallest = 0;
      if (budgeted_ && !fits(found.memory_bytes))
        one.least.memory_bytes = smallest =
            estimate_memory(on(grid, micro_batch, RecomputeMode::full), steps);
      if (!fits(one.least.memory_bytes)) continue;
      one.candidate = {
          .grid = grid, .optimistic = found, .state_bytes = state, .smallest_bytes = smallest};
      return;
    }
  }

  /// The time that a plan must not exceed to be among the best.
  double limit_s() const {
    const auto& plans = result_.plans;
    return std::ssize(plans) < options_.top ? kNever : seconds_of(plans.back());
  }

  /// Finds out more of the open grids that may have the fastest plan: at last, that plan.
  void take_most_promising(double limit_s) {
    // The first plans are predicted at once: what others are compared with saves more.
    const auto order = [&](const Candidate* one) {
      return std::pair(limit_s == kNever ? -static_cast<int>(one->stage) : 0, one->bound_s());
    };
    std::ranges::stable_sort(open_, {}, order);
    const Stage stage = open_.front()->stage;
    const std::size_t most = stage == Stage::refined ? kPredictedAtOnce : kEstimatedAtOnce;
    std::vector<Candidate*> now;
    for (Candidate* const one : open_) {
      if (one->stage != stage || one->bound_s() > limit_s || now.size() == most) break;
      now.push_back(one);
    }
    std::vector<std::optional<Plan>> found(now.size());
    parallel_for(now.size(), threads_, [&](std::size_t i) {
      if (stage == Stage::screened) estimate_plans(*now[i], limit_s);
      if (stage == Stage::estimated) refine(*now[i], limit_s);
      if (stage == Stage::refined) found[i] = with_rollouts(best_of(*now[i], limit_s));
    });
    if (stage == Stage::screened) result_.simulated += static_cast<int>(now.size());
    for (std::size_t i = 0; i < now.size() && stage == Stage::refined; ++i) {
      std::erase(open_, now[i]);
      *now[i] = {};  // frees its dry steps
      if (found[i]) add(*std::move(found[i]));
    }
  }

  void add(Plan plan) {
    auto& plans = result_.plans;
    if (!fits(plan.memory_bytes)) {  // only answers do not: their memory is of no other plan
      if (!result_.smallest || plan.memory_bytes < result_.smallest->memory_bytes)
        result_.smallest = std::move(plan);
      return;
    }
    const auto at = std::ranges::upper_bound(plans, seconds_of(plan), {}, seconds_of);
    plans.insert(at, std::move(plan));
    if (std::ssize(plans) > options_.top) plans.pop_back();
  }

  /// Finds the plans of this grid that may take less than limit_s, with estimates.
  void estimate_plans(Candidate& candidate, double limit_s) const {
    candidate.stage = Stage::estimated;
    candidate.steps = std::make_shared<DrySteps>();
    std::vector<Estimated>& plans = candidate.plans;
    double least = limit_s;
    for (const RecomputeMode mode : modes_) {
      const PreparedRun run = on(candidate.grid, space_.useful_sizes(candidate.grid).front(), mode);
      const double optimistic_s =
          budgeted_ ? candidate.least_s : cost(run, optimistic, *candidate.steps).time.step_s;
      if (optimistic_s <= kSlack * least) add_plans(mode, candidate, least);
      for (const Estimated& one : plans) least = std::min(least, one.seconds());
    }
    std::ranges::stable_sort(plans, {}, &Estimated::seconds);
  }

  /// Raises the least times of plans that need some recomputation.
  void refine(Candidate& candidate, double limit_s) const {
    candidate.stage = Stage::refined;
    for (Estimated& one : candidate.plans)
      if (one.levels && one.least_s <= kClose * limit_s)
        one.least_s = std::max(one.least_s, seconds_with_recomputation(one, *candidate.steps));
  }

  /// An estimate from steps whose blocks all recompute the same: the blocks of a level have one of
  /// two plans.
  double seconds_with_recomputation(const Estimated& one, DrySteps& steps) const {
    const auto seconds = [&](const PreparedRun& run) {
      return cost(run, estimate, steps).time.step_s;
    };
    const double below = seconds(one.levels->plan_below(one.level)),
                 share = one.levels->share_of_next(one.level);
    return share == 0 ? below : std::lerp(below, seconds(one.levels->plan_above(one.level)), share);
  }

  /// The fastest of the grid's plans, or none if it cannot take less than limit_s.
  std::optional<Plan> best_of(Candidate& candidate, double limit_s) const {
    for (Estimated& one : candidate.plans)
      if (one.least_s <= kClose * limit_s)
        if (auto plan = predicted(one, candidate.steps)) return plan;
    return std::nullopt;
  }

  /// The plan as all blocks run it, with the least recomputation that fits if that is free; none if
  /// it does not fit.
  std::optional<Plan> predicted(Estimated& one, const std::shared_ptr<DrySteps>& steps) const {
    PreparedRun run = planned(run_, one.plan);
    Prediction exact = {one.plan.time, one.plan.memory_bytes};
    if (!one.levels) exact = cost(run, predict, *steps);
    if (budgeted_ && !fits(exact.memory_bytes)) {
      if (!one.levels) one.levels.emplace(run, machine_, RecomputeSets::nested, steps);
      const auto peak = [&](const PreparedRun& some) {
        options_.note_progress();
        return steps->step(some).memory.peak_bytes;
      };
      run = one.levels->at(one.levels->likely_least_within(budget_, peak, one.level));
      exact = cost(run, predict, *steps);
      one.plan.set_recomputation(run->activation_checkpoint);
    }
    if (!fits(exact.memory_bytes)) return std::nullopt;
    one.plan.time = exact.time;
    one.plan.memory_bytes = exact.memory_bytes;
    return one.plan;
  }

  /// A micro-batch that does not fit, and its memory.
  struct TooLarge {
    std::int64_t size = 0, bytes = 0;
  };

  /// Whether micro-batches of the run's size fit, with recomputation if that is free. A size may
  /// fit where a smaller one does not: there are more of the smaller ones, whose gradients are
  /// added up. `larger` is the last that did not.
  bool fits_somehow(const PreparedRun& run, const Candidate& candidate, DrySteps& steps,
                    TooLarge& larger) const {
    options_.note_progress();
    const std::int64_t size = run->training.micro_batch, state = candidate.state_bytes;
    if (!fits(state + least_activations(run))) return false;
    // What a micro-batch takes beside the state grows at most in proportion to it.
    if (larger.size > 0 && !fits(state + (larger.bytes - state) / larger.size * size)) return false;
    const bool known =
        candidate.smallest_bytes > 0 && size == space_.useful_sizes(candidate.grid).front();
    const std::int64_t bytes = known ? candidate.smallest_bytes : estimate_memory(run, steps);
    if (!fits(bytes)) larger = {size, bytes};
    return fits(bytes);
  }

  /// A lower bound that needs no dry step: what is kept of each block for the backward pass. With
  /// recomputation that is its input; without, also queries, attention's output and values in the
  /// MLP, or in the experts of each token.
  static std::int64_t least_activations(const PreparedRun& run) {
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

  /// Adds plans with their estimates: micro-batches from the largest that fits downwards, until a
  /// smaller one is slower. Leaves out those that take clearly more than most_s.
  void add_plans(RecomputeMode mode, Candidate& candidate, double most_s) const {
    const GridShape& grid = candidate.grid;
    const std::shared_ptr<DrySteps>& steps = candidate.steps;
    double before = kNever;
    TooLarge larger;
    for (const std::int64_t size : std::views::reverse(space_.useful_sizes(grid))) {
      const PreparedRun run = on(grid, size, mode);
      if (!fits_somehow(budgeted_ ? on(grid, size, RecomputeMode::full) : run, candidate, *steps,
                        larger))
        continue;
      const Prediction found = cost(run, estimate, *steps);
      Estimated one{.plan = {.grid = grid,
                             .micro_batch = size,
                             .recompute = mode,
                             .time = found.time,
                             .memory_bytes = found.memory_bytes},
                    .least_s = found.time.step_s};
      if (one.seconds() > before) return;
      if (one.seconds() > kClose * most_s) continue;
      if (budgeted_ && !fits(found.memory_bytes)) {
        one.least_s =
            std::max(one.least_s, found.time.compute_s +
                                      kSure * recomputing_s(run, found.memory_bytes - budget_));
        if (one.least_s > kClose * most_s) continue;
        one.levels.emplace(run, machine_, RecomputeSets::nested, steps);
        one.level = one.levels->about(budget_);
        one.plan.time.step_s += one.levels->more_seconds(one.level);
      }
      before = std::min(before, one.seconds());
      candidate.plans.push_back(std::move(one));
    }
  }

  const PreparedRun& run_;
  const Machine& machine_;
  const SearchOptions options_;
  const SearchSpace space_;
  std::int64_t budget_ = static_cast<std::int64_t>(machine_.usable_bytes());
  const int threads_ = usable_core_count();
  /// Whether a plan takes the least recomputation that fits; else all blocks have one of the modes.
  const bool budgeted_ = !options_.recompute && options_.cost == CostModel::simulated;
  std::vector<RecomputeMode> modes_ = {RecomputeMode::none, RecomputeMode::full};
  std::vector<Candidate> candidates_;
  std::vector<Candidate*> open_;            ///< those whose best plan is not known yet
  std::optional<RecomputeLevels> typical_;  ///< if the memory of some grid is short
  SearchResult result_;
};

}  // namespace

SearchResult search(const PreparedRun& run, const Machine& machine, const SearchOptions& options) {
  if (options.devices < 1) refuse("a plan for ", options.devices, " devices; give at least 1");
  AXONN_CHECK(options.top > 0, "search: wanted at least one plan, got top = ", options.top);
  check_rates(machine, run->training.dtype, options.devices);
  return Search(run, machine, options).run();
}

PreparedRun planned(const PreparedRun& run, const Plan& plan) {
  return run.with([&](Config& config) {
    config.parallelism.set_grid(plan.grid);
    config.parallelism.context = plan.grid.context;
    config.parallelism.experts = plan.grid.experts;
    config.training.micro_batch = plan.micro_batch;
    config.parallelism.keep_weights = plan.keep_weights.value_or(config.parallelism.keep_weights);
    config.rl.hold_weights = plan.hold_weights.value_or(config.rl.hold_weights);
    RecomputeConfig& recompute = config.activation_checkpoint;
    recompute.mode = plan.recompute;
    recompute.blocks = plan.recompute_blocks.value_or(recompute.blocks);
    if (plan.recompute_blocks) {
      recompute.values = plan.recompute_values;
      recompute.first_values = plan.recompute_first_values;
    }
  });
}

int devices_that_fit(const PreparedRun& run, const Machine& machine, SearchOptions options,
                     int most) {
  for (std::int64_t devices = std::int64_t{2} * options.devices; devices <= most; devices *= 2) {
    options.devices = static_cast<int>(devices);
    options.top = 1;
    try {
      if (!search(run, machine, options).plans.empty()) return options.devices;
    } catch (const UsageError&) {  // no grid of so many devices can cut the model and batch
      return 0;
    }
  }
  return 0;
}

}  // namespace axonn
