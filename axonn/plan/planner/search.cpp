#include "axonn/plan/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <ranges>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/plan/planner/screening.h"
#include "axonn/plan/planner/search_space.h"
#include "axonn/use/rewards/rollout_sampler.h"

namespace axonn {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A bound may exceed the true time, because collectives of a step with the rows of all
/// micro-batches hide otherwise. The largest excess over 4,250 estimates for published steps is
/// 0.3 %, and 3 % on models so small that latency dominates.
constexpr double kSlack = 1.03;

/// The part of the time of the plans so far below which an estimated plan is predicted at once.
constexpr double kFaster = 0.98;

/// A family of so few grids has no bound of its own.
constexpr std::size_t kFew = 2;

double seconds_of(const Plan& plan) { return plan.time.step_s; }

/// The part of a step's time below which weights are kept: what saves less is not worth the memory.
constexpr double kWorthKeeping = 0.98;

/// A plan with its estimated time and memory.
struct Estimated {
  Plan plan;
  double least_s = 0;  ///< about, by predict(), if what is computed again hides communication
  /// If the plan needs some recomputation: its levels, and about the least that fits.
  std::optional<RecomputeLevels> levels = {};
  std::int64_t level = 0;
  bool refined = false;  ///< least_s has the recomputation that fits

  double seconds() const { return seconds_of(plan); }
};

/// What is known of a grid, in this order; each takes longer to find than the one before.
enum class Stage : std::uint8_t {
  family,     ///< about the least time of a step on any of several grids
  bounded,    ///< on one grid, from a step on another of the family
  screened,   ///< whether it fits, and a better bound
  estimated,  ///< the plans, with estimates
  refined     ///< that of least_s has the recomputation that fits
};

/// How many families or grids of each stage are taken at the same time, on as many threads as there
/// are cores. Fixed, so that a plan does not depend on the number of cores.
constexpr std::array<std::ptrdiff_t, 5> kAtOnce = {1, 8, 8, 8, 2};

/// The same of grids that are predicted at once, and of the first ones to be estimated.
constexpr std::ptrdiff_t kFirst = 2;

/// A grid, which can cut the model and fits in some mode once it is screened; or a family.
struct Candidate {
  Stage stage = Stage::family;
  GridFamily family = {};            ///< one grid from the second stage on
  std::vector<double> least_s = {};  ///< of each; once it is screened, of each useful size
  Screened screened = {};
  std::vector<Estimated> plans = {};          ///< by time
  std::shared_ptr<DrySteps> steps = nullptr;  ///< of these

  /// No plan of this grid is faster.
  double bound_s() const {
    if (stage < Stage::estimated) return *std::ranges::min_element(least_s) / kSlack;
    double least = kNever;
    for (const Estimated& one : plans) least = std::min(least, one.least_s);
    return least;
  }
};

class Search {
 public:
  Search(const PreparedRun& run, const Machine& machine, const SearchOptions& options)
      : run_(run), machine_(machine), options_(options) {}

  SearchResult run() {
    const std::vector<GridShape> grids = space_.grids();
    result_.grids = static_cast<int>(grids.size());
    open(families(grids, false, 0));
    ProgressLine line(options_.progress, "searching", "grids");
    for (double most_s = kNever; may_have_faster(most_s); most_s = limit_s()) {
      line(result_.grids - grids_open(), result_.grids);
      take_most_promising(most_s);
    }
    result_.ruled_out = grids_open();
    if (result_.cut == 0)
      refuse("none of the ", result_.grids, " grids of ", options_.devices,
             " devices that strategy ", kStrategies[static_cast<int>(options_.strategy)],
             " and the settings allow can cut this model and batch",
             reason_.empty() ? "" : "; for example: ", reason_);
    if (!result_.plans.empty()) result_.smallest.reset();
    const bool free = run_->parallelism.keep_weights == KeepWeights::none;
    if (free && options_.keep_weights && options_.cost == CostModel::simulated) keep_weights();
    return std::move(result_);
  }

 private:
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
          !screening_.fits(best.memory_bytes) || other.seconds < best.seconds)
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
      const Prediction found = screening_.cost(planned(run_, kept), predict, steps);
      kept.time = found.time;
      kept.memory_bytes = found.memory_bytes;
      kept = *with_rollouts(kept);
      const double most_s = std::min(kWorthKeeping * seconds_of(plan), seconds_of(best));
      if (screening_.fits(kept.memory_bytes) && seconds_of(kept) < most_s) best = kept;
    }
    return best;
  }

  /// The time that a plan must not exceed to be among the best.
  double limit_s() const {
    const auto& plans = result_.plans;
    return std::ssize(plans) < options_.top ? kNever : seconds_of(plans.back());
  }

  bool may_have_faster(double limit_s) const {
    return std::ranges::any_of(open_, [&](const auto& one) { return one->bound_s() <= limit_s; });
  }

  /// The number of grids that are not screened.
  int grids_open() const {
    std::size_t grids = 0;
    for (const auto& one : open_)
      if (one->stage < Stage::screened) grids += one->family.grids.size();
    return static_cast<int>(grids);
  }

  /// Finds out more of the open grids that may have the fastest plan: at last, that plan.
  void take_most_promising(double limit_s) {
    // What seems to be faster than all before is predicted at once: others need not be examined if
    // they are slower.
    const auto leads = [&](const auto& one) {
      return !one->plans.empty() && one->plans.front().seconds() < kFaster * limit_s;
    };
    std::ranges::stable_sort(open_, {}, [&](const auto& one) {
      return std::pair(leads(one) ? -static_cast<int>(one->stage) : 0, one->bound_s());
    });
    const Stage stage = open_.front()->stage;
    const bool leading = leads(open_.front()), predicts = stage == Stage::refined || leading,
               few = leading || (limit_s == kNever && stage == Stage::screened);
    const std::ptrdiff_t most = few ? kFirst : kAtOnce[static_cast<std::size_t>(stage)];
    const auto end = std::ranges::find_if(open_, [&](const auto& one) {
      return one->stage != stage || leads(one) != leading || one->bound_s() > limit_s;
    });
    const std::ptrdiff_t count = std::min(end - open_.begin(), most);
    std::vector<std::unique_ptr<Candidate>> now(std::move_iterator(open_.begin()),
                                                std::move_iterator(open_.begin() + count));
    open_.erase(open_.begin(), open_.begin() + count);
    if (stage == Stage::family) return open(parts_of(*now.front()));
    std::vector<std::optional<Plan>> found(now.size());
    parallel_for(now.size(), threads_, [&](std::size_t i) {
      Candidate& one = *now[i];
      if (stage == Stage::bounded) screen(one);
      if (stage == Stage::screened) estimate_plans(one, limit_s);
      if (stage == Stage::estimated && !predicts) refine(one);
      if (predicts) found[i] = with_rollouts(best_of(one, limit_s));
    });
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (found[i]) add(*std::move(found[i]));
      if (stage == Stage::screened) ++result_.simulated;
      const bool goes_on = stage == Stage::bounded ? counted(now[i]->screened) : !predicts;
      if (goes_on) open_.push_back(std::move(now[i]));
    }
  }

  /// Families of the same factors, or the grids of one.
  std::vector<std::unique_ptr<Candidate>> parts_of(const Candidate& whole) const {
    const auto& [grids, same_factors] = whole.family;
    std::vector<std::unique_ptr<Candidate>> parts;
    if (!same_factors) return families(grids, true, *std::ranges::min_element(whole.least_s));
    for (std::size_t i = 0; i < grids.size(); ++i)
      parts.push_back(std::make_unique<Candidate>(Candidate{
          .stage = Stage::bounded, .family = {{grids[i]}, true}, .least_s = {whole.least_s[i]}}));
    return parts;
  }

  static std::vector<std::unique_ptr<Candidate>> families(const std::vector<GridShape>& grids,
                                                          bool by_factors, double least_s) {
    std::vector<std::unique_ptr<Candidate>> all;
    for (GridFamily& family : SearchSpace::families_of(grids, by_factors)) {
      const std::vector<double> bounds(family.grids.size(), least_s);
      all.push_back(
          std::make_unique<Candidate>(Candidate{.family = std::move(family), .least_s = bounds}));
    }
    return all;
  }

  /// Finds bounds of families, but screens their grids where they are few.
  void open(std::vector<std::unique_ptr<Candidate>> all) {
    std::vector<std::unique_ptr<Candidate>> parts;
    for (std::unique_ptr<Candidate>& one : all) {
      const bool few = one->family.grids.size() <= kFew || options_.cost != CostModel::simulated;
      if (one->stage != Stage::family || !few) {
        parts.push_back(std::move(one));
        continue;
      }
      one->family.same_factors = true;
      std::ranges::move(parts_of(*one), std::back_inserter(parts));
    }
    parallel_for(parts.size(), threads_, [&](std::size_t i) {
      Candidate& one = *parts[i];
      if (one.stage == Stage::family) one.least_s = screening_.least_s(one.family);
    });
    std::ranges::move(parts, std::back_inserter(open_));
  }

  void screen(Candidate& one) const {
    one.stage = Stage::screened;
    one.screened = screening_.screened(one.family.grids.front());
    one.least_s = one.screened.least_s;
  }

  /// Whether the grid fits.
  bool counted(const Screened& one) {
    if (reason_.empty()) reason_ = one.reason;
    result_.cut += one.cuts;
    result_.fit += one.fits;
    const bool smaller =
        !result_.smallest || one.least.memory_bytes < result_.smallest->memory_bytes;
    if (one.cuts && !one.fits && smaller) result_.smallest = one.least;
    return one.fits;
  }

  void add(Plan plan) {
    auto& plans = result_.plans;
    if (!screening_.fits(
            plan.memory_bytes)) {  // only answers do not: their memory is of no other plan
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
    for (const RecomputeMode mode : screening_.modes()) {
      const Screened& grid = candidate.screened;
      if (!screening_.budgeted())
        candidate.least_s =
            screening_.least_s(grid, screening_.optimistic_step(grid.grid, mode, *candidate.steps));
      add_plans(mode, candidate, least);
      for (const Estimated& one : plans) least = std::min(least, one.seconds());
    }
    std::ranges::stable_sort(plans, {}, &Estimated::seconds);
  }

  /// Raises the least time of the plan that has the lowest one, if it needs some recomputation.
  void refine(Candidate& candidate) const {
    std::vector<Estimated>& plans = candidate.plans;
    const auto known = [](const Estimated& one) { return one.refined || !one.levels; };
    const auto lowest = [&] { return std::ranges::min_element(plans, {}, &Estimated::least_s); };
    if (const auto one = lowest(); one != plans.end() && !known(*one)) {
      one->least_s = std::max(one->least_s, seconds_with_recomputation(*one, *candidate.steps));
      one->refined = true;
    }
    if (plans.empty() || known(*lowest())) candidate.stage = Stage::refined;
  }

  /// About the least time, from steps whose blocks all recompute the same: the blocks of a level
  /// have one of two plans.
  double seconds_with_recomputation(const Estimated& one, DrySteps& steps) const {
    const auto seconds = [&](const PreparedRun& run) {
      return certain_seconds(screening_.cost(run, estimate, steps).time);
    };
    const double below = seconds(one.levels->plan_below(one.level)),
                 share = one.levels->share_of_next(one.level);
    return share == 0 ? below : std::lerp(below, seconds(one.levels->plan_above(one.level)), share);
  }

  /// The fastest of the grid's plans, or none if it cannot take less than limit_s.
  std::optional<Plan> best_of(Candidate& candidate, double limit_s) const {
    for (Estimated& one : candidate.plans)
      if (one.least_s <= limit_s)
        if (auto plan = predicted(one, candidate.steps)) return plan;
    return std::nullopt;
  }

  /// The plan as all blocks run it, with the least recomputation that fits if that is free; none if
  /// it does not fit.
  std::optional<Plan> predicted(Estimated& one, const std::shared_ptr<DrySteps>& steps) const {
    PreparedRun run = planned(run_, one.plan);
    Prediction exact = {one.plan.time, one.plan.memory_bytes};
    if (!one.levels) exact = screening_.cost(run, predict, *steps);
    if (screening_.budgeted() && !screening_.fits(exact.memory_bytes)) {
      if (!one.levels) one.levels.emplace(run, machine_, RecomputeSets::nested, steps);
      const auto peak = [&](const PreparedRun& some) {
        options_.note_progress();
        return steps->step(some).memory.peak_bytes;
      };
      run = one.levels->at(one.levels->likely_least_within(screening_.budget(), peak, one.level));
      exact = screening_.cost(run, predict, *steps);
      one.plan.set_recomputation(run->activation_checkpoint);
    }
    if (!screening_.fits(exact.memory_bytes)) return std::nullopt;
    one.plan.time = exact.time;
    one.plan.memory_bytes = exact.memory_bytes;
    return one.plan;
  }

  /// What larger micro-batches have shown: the last that does not fit, with its memory; whether one
  /// fits of which a step has as many kinds as of smaller ones: the first, the last and others.
  struct Tried {
    std::int64_t size = 0, bytes = 0;
    bool several_fit = false;
  };

  /// Whether micro-batches of the run's size fit, with recomputation if that is free. A size may
  /// fit where a smaller one does not: there are several of the smaller ones, whose gradients are
  /// added up.
  bool fits_somehow(const PreparedRun& run, const Screened& grid, DrySteps& steps,
                    Tried& larger) const {
    options_.note_progress();
    const std::int64_t size = run->training.micro_batch, state = grid.state_bytes;
    if (!screening_.fits(state + screening_.least_activations(run))) return false;
    // What a micro-batch takes beside the state grows at most in proportion to it.
    const auto in_proportion = [&](std::int64_t bytes, std::int64_t of) {
      return state + (bytes - state) / of * size;
    };
    if (larger.size > 0 && !screening_.fits(in_proportion(larger.bytes, larger.size))) return false;
    const std::int64_t smallest = space_.useful_sizes(grid.grid).front();
    bool fits =
        larger.several_fit ||
        (grid.smallest_bytes > 0 && screening_.fits(in_proportion(grid.smallest_bytes, smallest)));
    if (!fits) {
      const std::int64_t bytes = estimate_memory(run, steps);
      fits = screening_.fits(bytes);
      if (!fits) larger = {size, bytes};
    }
    larger.several_fit = fits && micro_batch_count(run.config()) > 2;
    return fits;
  }

  /// Adds plans with their estimates: micro-batches from the largest that fits downwards, until a
  /// smaller one is slower. Leaves out those that take clearly more than most_s.
  void add_plans(RecomputeMode mode, Candidate& candidate, double most_s) const {
    const GridShape& grid = candidate.screened.grid;
    const std::shared_ptr<DrySteps>& steps = candidate.steps;
    double before = kNever;
    Tried larger;
    const std::vector<std::int64_t> sizes = space_.useful_sizes(grid);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const std::int64_t size = sizes[i];
      if (candidate.least_s[i] > kSlack * most_s) continue;
      const PreparedRun run = screening_.on(grid, size, mode);
      if (!fits_somehow(
              screening_.budgeted() ? screening_.on(grid, size, RecomputeMode::full) : run,
              candidate.screened, *steps, larger))
        continue;
      const Prediction found = screening_.cost(run, estimate, *steps);
      Estimated one{.plan = {.grid = grid,
                             .micro_batch = size,
                             .recompute = mode,
                             .time = found.time,
                             .memory_bytes = found.memory_bytes},
                    .least_s = certain_seconds(found.time)};
      if (one.seconds() > before) return;
      if (one.least_s > most_s) continue;
      if (screening_.budgeted() && !screening_.fits(found.memory_bytes)) {
        const double again_s =
            screening_.recomputing_s(run, found.memory_bytes - screening_.budget());
        one.least_s = std::max(one.least_s, (found.time.compute_s + again_s) / kSlack);
        if (one.least_s > most_s) continue;
        one.levels.emplace(run, machine_, RecomputeSets::nested, steps);
        one.level = one.levels->about(screening_.budget());
        one.plan.time.step_s += one.levels->more_seconds(one.level);
      }
      before = std::min(before, one.seconds());
      candidate.plans.push_back(std::move(one));
    }
  }

  const PreparedRun& run_;
  const Machine& machine_;
  const SearchOptions options_;
  const SearchSpace space_{run_, machine_, options_};
  const Screening screening_{run_, machine_, options_, space_};
  const int threads_ = usable_core_count();
  std::vector<std::unique_ptr<Candidate>> open_;  ///< whose best plan is not known yet
  std::string reason_;                            ///< that some grid cannot cut the model
  SearchResult result_;
};

}  // namespace

SearchResult search(const PreparedRun& run, const Machine& machine, const SearchOptions& options) {
  if (options.devices < 1) refuse("a plan for ", options.devices, " devices; give at least 1");
  AXONN_CHECK(options.top > 0, "search: wanted at least one plan, got top = ", options.top);
  check_rates(machine, run->training.dtype, options.devices);
  if (!run->offload.dir.empty()) check_disk(machine);
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
