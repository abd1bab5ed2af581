#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/parallel/recompute.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// Values that blocks compute again, with the memory that this saves and the time that it costs.
struct RecomputePlan {
  Recompute values;
  std::int64_t saved_bytes = 0;  ///< fewer than with no recomputation
  double seconds = 0;            ///< more than with no recomputation, for each micro-batch
};

/// The plans of `all` that no other one, nor a mix of two others over many blocks, beats: from the
/// one that saves nothing on, by more saved bytes and more seconds for each of them. Of plans that
/// save and cost the same, the first.
std::vector<RecomputePlan> best_plans(std::vector<RecomputePlan> all);

/// Which sets of values RecomputeLevels compares.
enum class RecomputeSets : std::uint8_t {
  all,    ///< all, hundreds: what a run does
  nested  ///< each with one value more than the one before, 20 to 40: close to the best of all
};

/// Levels of recomputation of a model of L blocks, by less memory and more time. With plans P0, P1,
/// ... of one block, level i · L + k gives plan P(i+1) to the first k blocks and P(i) to the
/// others. The first level recomputes nothing, the last one everything.
class RecomputeLevels {
 public:
  /// Finds the plans: for each set of values that backward can make again, a dry step of few blocks
  /// gives the bytes that they keep, and its simulation on the machine the seconds, with the
  /// collectives that backward repeats and their overlap.
  ///
  /// The machine must have the rates. `steps`, of rank 0, does the dry steps.
  RecomputeLevels(const PreparedRun& run, const Machine& machine,
                  RecomputeSets sets = RecomputeSets::all,
                  std::shared_ptr<DrySteps> steps = std::make_shared<DrySteps>());

  const std::vector<RecomputePlan>& plans() const { return plans_; }
  std::int64_t last() const;
  /// The run, with the recomputation of this level.
  PreparedRun at(std::int64_t level) const;
  /// The run, with the last plan whose blocks all recompute at most what those of this level do.
  PreparedRun plan_below(std::int64_t level) const { return at(level / blocks_ * blocks_); }
  /// The run with the first plan whose blocks all recompute at least that much; and the share of
  /// the blocks of this level that have it, less than 1, where the others have the one below.
  PreparedRun plan_above(std::int64_t level) const { return plan_below(level + blocks_ - 1); }
  double share_of_next(std::int64_t level) const {
    return static_cast<double>(level % blocks_) / static_cast<double>(blocks_);
  }
  /// Seconds of a step at this level more than at level 0, if each block takes as much longer as
  /// one of few does.
  double more_seconds(std::int64_t level) const;
  /// About the least time that a step of `other`, which differs in its grid and micro-batch, takes
  /// more if its peak has `bytes` less. It is too low if a smaller part of the values is
  /// computed less efficiently, or if collectives are repeated.
  double least_seconds(const PreparedRun& other, std::int64_t bytes) const;
  /// The least level within a budget of bytes by estimate_memory(); the last level if none is.
  std::int64_t about(std::int64_t budget) const;
  /// The least level for which fits(run) holds, assuming that it holds from some level on; the
  /// last level if it never does. Begins at `guess`: if that is d levels away, calls fits about
  /// 2 log2(d) times.
  std::int64_t least(const std::function<bool(const PreparedRun&)>& fits, std::int64_t guess) const;
  using Peak = std::function<std::int64_t(const PreparedRun&)>;  ///< bytes of a step
  /// The least level whose peak is within the budget, as above. What a block of each level saves
  /// leads to it in a few calls of peak(run).
  std::int64_t least_within(std::int64_t budget, const Peak& peak, std::int64_t guess) const;
  /// The same, or a level or two above: that the level before does not fit is not tried.
  std::int64_t likely_least_within(std::int64_t budget, const Peak& peak, std::int64_t guess) const;

 private:
  using KnownPeaks = std::map<std::int64_t, std::int64_t>;  // by level
  std::int64_t peak_at(std::int64_t level, const Peak& peak, KnownPeaks& known) const;
  std::int64_t likely_least(std::int64_t budget, const Peak& peak, std::int64_t guess,
                            KnownPeaks& known) const;
  std::int64_t search_level(const std::function<bool(std::int64_t)>& fits,
                            std::int64_t guess) const;
  PreparedRun run_;
  std::shared_ptr<DrySteps> steps_;
  std::int64_t blocks_, few_;
  std::vector<RecomputePlan> plans_;
};

/// The machine of parallelism.machine; if that is not set, one with the usual ratio of the rates of
/// products, memory and links of the device.
Machine machine_of(const Config& config);

/// The largest peak of a step of the ranks that may differ from each other, in bytes. Ranks along z
/// and data hold pieces of equal size.
std::int64_t largest_peak(const PreparedRun& run);

/// Returns the run with the least recomputation with which the peak of every rank's step is at most
/// activation_checkpoint.budget, by dry steps: the peak is exact. Without a budget, or with an
/// automatic grid, returns the run as it is. Depends on the run and its machine file alone. Throws
/// UsageError if no recomputation suffices, with the least budget that does.
PreparedRun within_budget(const PreparedRun& run);

/// Rank 0's recomputation, for all ranks. Collective.
PreparedRun with_recomputation_of_rank_0(const PreparedRun& run, Communicator& world);

}  // namespace axonn
