#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/plan/planner/search.h"
#include "axonn/plan/planner/search_space.h"

namespace axonn {

/// What a search knows of a grid before its plans.
struct Screened {
  GridShape grid;
  bool cuts = false;                 ///< it can cut model and batch
  bool fits = false;                 ///< in some mode
  std::vector<double> least_s = {};  ///< if it fits: of each useful size, about its least time
  std::int64_t state_bytes = 0;      ///< in memory at any time
  std::int64_t smallest_bytes = 0;   ///< of the smallest micro-batch, all recomputed; 0: unknown
  Plan least = {};                   ///< if it does not fit: the plan with the least memory
  std::string reason;                ///< if it cannot cut them
};

/// The costs of runs on the grids of a search, and lower bounds. Several threads may use it. What
/// it is made of must outlive it.
class Screening {
 public:
  Screening(const PreparedRun& run, const Machine& machine, const SearchOptions& options,
            const SearchSpace& space);

  /// Whether a plan takes the least recomputation that fits; else all blocks have one of modes().
  bool budgeted() const { return budgeted_; }
  const std::vector<RecomputeMode>& modes() const { return modes_; }
  /// Of a rank, and whether so many are within it.
  std::int64_t budget() const { return budget_; }
  bool fits(std::int64_t bytes) const { return bytes <= budget_; }
  PreparedRun on(const GridShape& grid, std::int64_t micro_batch, RecomputeMode mode) const;

  /// simulated(): predict(), estimate() or optimistic(). With the paper's model, its time, and the
  /// memory of predict() or of estimate().
  using Simulated = Prediction(const PreparedRun&, const Machine&, DrySteps&);
  Prediction cost(const PreparedRun& run, Simulated* simulated, DrySteps& steps) const;

  /// Whether the grid can cut the model and fits, and about its least time.
  Screened screened(const GridShape& grid) const;

  /// optimistic() on the grid, with the memory of its smallest micro-batch.
  Prediction optimistic_step(const GridShape& grid, RecomputeMode mode, DrySteps& steps) const;

  /// From that, about the least time of a step with micro-batches of each useful size.
  std::vector<double> least_s(const Screened& one, const Prediction& optimistic) const;

  /// About the least time of a step on each grid of the family; 0 if that is unknown.
  std::vector<double> least_s(const GridFamily& family) const;

  /// About the least time that a step takes longer if it lacks so many bytes.
  double recomputing_s(const PreparedRun& run, std::int64_t missing) const;

  /// A lower bound of a micro-batch's memory that needs no dry step: what is kept of each block for
  /// the backward pass. With recomputation that is its input; without, also queries, attention's
  /// output and values in the MLP, or in the experts of each token.
  static std::int64_t least_activations(const PreparedRun& run);

 private:
  void screen(std::int64_t micro_batch, Screened& one) const;
  double least_s(const StepTime& optimistic, double micro_batches, double recomputing_s) const;
  std::int64_t quickest_size(const GridShape& grid) const;
  double batches(const GridShape& grid, std::int64_t size) const;
  bool once_a_step(const std::string& collective) const;
  PreparedRun typical() const;

  const PreparedRun& run_;
  const Machine& machine_;
  const SearchOptions& options_;
  const SearchSpace& space_;
  std::int64_t budget_;
  const bool budgeted_;
  std::vector<RecomputeMode> modes_ = {RecomputeMode::none, RecomputeMode::full};
  mutable std::once_flag typical_found_;
  mutable std::optional<RecomputeLevels> typical_;  ///< if the memory of some grid is short
};

}  // namespace axonn
