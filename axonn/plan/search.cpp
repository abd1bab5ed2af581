#include "axonn/plan/search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <ranges>

#include "axonn/base/check.h"
#include "axonn/plan/bound.h"
#include "axonn/plan/costs.h"
#include "axonn/plan/estimate.h"
#include "axonn/plan/paper_model.h"

namespace axonn {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The optimistic time may exceed the true one, because a single micro-batch overlaps its sum over
/// data worse than several do. The largest excess seen, on small models, is 5 %.
constexpr double kSlack = 1.08;

/// Plans to keep beyond those requested until all their blocks are simulated: estimate_time() may
/// order close plans wrongly.
constexpr int kSpare = 3;

constexpr std::array kModes = {RecomputeMode::none, RecomputeMode::full};

/// A grid that can cut the model and fits in some mode.
struct Candidate {
  GridShape grid;
  double optimistic_s = kNever;  ///< of the first mode that fits
};

class Search {
 public:
  Search(const Config& config, const Machine& machine, const SearchOptions& options)
      : config_(config), machine_(machine), options_(options) {}

  SearchResult run();

 private:
  bool wanted(const GridShape& grid) const;
  bool wanted(RecomputeMode mode) const { return options_.recompute.value_or(mode) == mode; }
  std::vector<std::int64_t> micro_batches(const GridShape& grid) const;
  Config on(const GridShape& grid, std::int64_t micro_batch, RecomputeMode mode) const;
  bool fits(std::int64_t bytes) const {
    return static_cast<double>(bytes) <= machine_.memory_bytes;
  }
  Optimistic bound(const Config& config) const;
  StepTime time_of(const Config& config, bool whole_depth) const;
  void screen();
  void screen(const GridShape& grid, const std::vector<std::int64_t>& micros);
  std::optional<Plan> best_of(const GridShape& grid, double limit_s, std::int64_t margin) const;
  void best_in(RecomputeMode mode, const GridShape& grid, std::int64_t margin,
               std::optional<Plan>& best) const;
  double last_s() const;
  void insert(Plan plan);
  void confirm();
  std::string uncut_batch(const GridShape& grid) const;
  [[noreturn]] void refuse_all(const std::string& reason) const;

  const Config& config_;
  const Machine& machine_;
  const SearchOptions options_;
  std::vector<Candidate> candidates_;
  SearchResult result_;
};

bool Search::wanted(const GridShape& grid) const {
  for (const Axis axis : kAxes)
    if (const int fixed = options_.fixed.extent(axis); fixed > 0 && fixed != grid.extent(axis))
      return false;
  return allows(options_.strategy, grid, machine_.devices_per_node);
}

/// The possible micro-batch sizes on this grid, ascending; empty if it cannot cut the batch.
std::vector<std::int64_t> Search::micro_batches(const GridShape& grid) const {
  const std::int64_t places = std::int64_t{grid.z} * grid.data,
                     batch = config_.training.global_batch;
  std::vector<std::int64_t> sizes;
  if (batch % places != 0) return sizes;
  const std::int64_t local = batch / places;
  for (std::int64_t size = 1; size <= local; ++size)
    if (local % size == 0 && size % config_.parallelism.chunks == 0 &&
        (options_.micro_batch == 0 || options_.micro_batch == size))
      sizes.push_back(size);
  return sizes;
}

Config Search::on(const GridShape& grid, std::int64_t micro_batch, RecomputeMode mode) const {
  return planned(config_,
                 {.grid = grid, .micro_batch = micro_batch, .recompute = mode, .time = {}});
}

Optimistic Search::bound(const Config& config) const {
  if (options_.cost == CostModel::simulated) return optimistic(config, machine_);
  return {time_of(config, false).step_s, estimate_memory(config)};
}

StepTime Search::time_of(const Config& config, bool whole_depth) const {
  if (options_.cost == CostModel::simulated)
    return whole_depth ? estimate_whole_depth(config, machine_) : estimate_time(config, machine_);
  const PaperSeconds paper =
      paper_seconds(config.model,
                    {.tokens = config.training.global_batch * config.training.seq_len,
                     .recompute = config.activation_checkpoint.mode == RecomputeMode::full},
                    machine_, config.parallelism.grid());
  return {.step_s = paper.total(),
          .exposed_by = {{"z all_gather", paper.gather_z},
                         {"z reduce_scatter", paper.scatter_z},
                         {"y all_reduce", paper.reduce_y},
                         {"x all_reduce", paper.reduce_x},
                         {"data all_reduce", paper.reduce_data}}};
}

void Search::screen() {
  std::string reason;
  for (const GridShape& grid : grids_of(options_.devices)) {
    if (!wanted(grid)) continue;
    ++result_.grids;
    const auto micros = micro_batches(grid);
    if (micros.empty()) {
      if (reason.empty()) reason = uncut_batch(grid);
      continue;
    }
    try {
      screen(grid, micros);
    } catch (const UsageError& error) {  // the grid cannot cut a layer
      reason = error.what();
    }
  }
  if (result_.cut == 0) refuse_all(reason);
  std::ranges::stable_sort(candidates_, {}, &Candidate::optimistic_s);
}

void Search::screen(const GridShape& grid, const std::vector<std::int64_t>& micros) {
  Plan least{
      .grid = grid, .micro_batch = micros.front(), .recompute = RecomputeMode::full, .time = {}};
  least.memory_bytes = state_bytes(planned(config_, least));
  ++result_.cut;
  for (const RecomputeMode mode : kModes) {
    if (!wanted(mode) || !fits(least.memory_bytes)) continue;
    const Optimistic one = bound(on(grid, micros.front(), mode));
    least.memory_bytes = one.memory_bytes;
    if (!fits(one.memory_bytes)) continue;
    candidates_.push_back({grid, one.seconds});
    ++result_.fit;
    return;
  }
  if (!result_.smallest || least.memory_bytes < result_.smallest->memory_bytes)
    result_.smallest = least;
}

/// The fastest plan on this grid, or none if no mode can take less than limit_s even by its
/// optimistic time. margin: bytes by which estimate_memory() is assumed to be too low.
std::optional<Plan> Search::best_of(const GridShape& grid, double limit_s,
                                    std::int64_t margin) const {
  std::optional<Plan> best;
  for (const RecomputeMode mode : kModes) {
    if (!wanted(mode)) continue;
    const double beat = best ? std::min(limit_s, best->time.step_s) : limit_s;
    const Config config = on(grid, micro_batches(grid).front(), mode);
    if (bound(config).seconds <= kSlack * beat) best_in(mode, grid, margin, best);
  }
  return best;
}

/// Tries micro-batches from the largest that fits downwards, until a smaller one is slower. A
/// smaller one may need more memory: there are more of them, whose gradients are added up.
void Search::best_in(RecomputeMode mode, const GridShape& grid, std::int64_t margin,
                     std::optional<Plan>& best) const {
  const auto sizes = micro_batches(grid);
  const auto room = [&](std::int64_t size) {
    return fits(estimate_memory(on(grid, size, mode)) + margin);
  };
  double before = kNever;
  for (const std::int64_t size : std::views::reverse(sizes)) {
    if (!room(size)) continue;
    const Config config = on(grid, size, mode);
    Plan plan{.grid = grid, .micro_batch = size, .recompute = mode, .time = {}};
    plan.time = time_of(config, false);
    if (plan.time.step_s > before) return;
    before = plan.time.step_s;
    if (best && best->time.step_s <= before) continue;
    plan.memory_bytes = estimate_memory(config) + margin;
    best = plan;
  }
}

/// The time that a plan must beat.
double Search::last_s() const {
  return std::ssize(result_.plans) < options_.top + kSpare ? kNever
                                                           : result_.plans.back().time.step_s;
}

void Search::insert(Plan plan) {
  auto& plans = result_.plans;
  const auto at = std::ranges::upper_bound(plans, plan.time.step_s, {},
                                           [](const Plan& one) { return one.time.step_s; });
  plans.insert(at, std::move(plan));
  if (std::ssize(plans) > options_.top + kSpare) plans.pop_back();
}

/// Computes the plans' memory to the byte, and their times with all blocks. Replaces a plan that
/// turns out too large by the next best on its grid.
void Search::confirm() {
  auto& plans = result_.plans;
  std::map<std::string, std::int64_t> margins;  // by grid: how far estimates were too low
  for (std::size_t i = 0; i < plans.size();) {
    const std::int64_t exact = exact_memory(planned(config_, plans[i]));
    std::int64_t& margin = margins[to_string(plans[i].grid)];
    // memory_bytes has the margin that the plan was chosen with. The new one is larger if the plan
    // does not fit, so that it is not chosen again.
    margin += exact - plans[i].memory_bytes;
    plans[i].memory_bytes = exact;
    if (fits(exact)) {
      ++i;
      continue;
    }
    const GridShape grid = plans[i].grid;
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(i));
    if (auto other = best_of(grid, kNever, margin)) plans.push_back(std::move(*other));
  }
  for (Plan& plan : plans) plan.time = time_of(planned(config_, plan), true);
  std::ranges::stable_sort(plans, {}, [](const Plan& plan) { return plan.time.step_s; });
  if (std::ssize(plans) > options_.top) plans.erase(plans.begin() + options_.top, plans.end());
}

SearchResult Search::run() {
  screen();
  for (const Candidate& candidate : candidates_) {
    if (candidate.optimistic_s > kSlack * last_s()) break;
    ++result_.simulated;
    if (auto plan = best_of(candidate.grid, last_s(), 0)) insert(std::move(*plan));
  }
  confirm();
  if (!result_.plans.empty()) result_.smallest.reset();
  return std::move(result_);
}

std::string Search::uncut_batch(const GridShape& grid) const {
  const std::int64_t micro = options_.micro_batch;
  return concat(
      "grid ", to_string(grid), " cannot cut the batch of ", config_.training.global_batch,
      " sequences into ", grid.z * grid.data, " parts over z and data",
      micro > 0 ? concat(", with micro-batches of ", micro) : "",
      config_.parallelism.chunks > 1 ? concat(", with ", config_.parallelism.chunks, " chunks each")
                                     : "");
}

void Search::refuse_all(const std::string& reason) const {
  refuse("none of the ", result_.grids, " grids of ", options_.devices, " devices that strategy ",
         kStrategies[static_cast<int>(options_.strategy)],
         " and the settings allow can cut this model and batch",
         reason.empty() ? "" : "; for example: ", reason);
}

}  // namespace

SearchResult search(const Config& config, const Machine& machine, const SearchOptions& options) {
  AXONN_CHECK(config.model.vocab > 0, "search: the config is not resolved: it has no vocab");
  if (options.devices < 1) refuse("a plan for ", options.devices, " devices; give at least 1");
  AXONN_CHECK(options.top > 0, "search: wanted at least one plan, got top = ", options.top);
  check_rates(machine, config.training.dtype, options.devices);
  return Search(config, machine, options).run();
}

Config planned(Config config, const Plan& plan) {
  config.parallelism.set_grid(plan.grid);
  config.training.micro_batch = plan.micro_batch;
  config.activation_checkpoint.mode = plan.recompute;
  return config;
}

int devices_that_fit(const Config& config, const Machine& machine, SearchOptions options,
                     int most) {
  for (std::int64_t devices = std::int64_t{2} * options.devices; devices <= most; devices *= 2) {
    options.devices = static_cast<int>(devices);
    options.top = 1;
    try {
      if (!search(config, machine, options).plans.empty()) return options.devices;
    } catch (const UsageError&) {  // no grid of so many devices can cut the model and batch
      return 0;
    }
  }
  return 0;
}

}  // namespace axonn
