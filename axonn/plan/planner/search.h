#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/log.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/simulate.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

/// Which grids a search considers: those of common kinds of parallelism, or all.
enum class Strategy {
  fsdp,      ///< only z: FSDP, ZeRO-3
  hsdp,      ///< z and data: hybrid sharding, ZeRO++
  megatron,  ///< x within a node, and z and data: tensor parallelism in the node
  grid_4d,   ///< all
};

inline constexpr std::array<std::string_view, 4> kStrategies = {"fsdp", "hsdp", "megatron", "4d"};

bool allows(Strategy strategy, const GridShape& grid, int devices_per_node);

/// One way to run a step, with its predicted time and memory. Plain data.
struct Plan {
  GridShape grid;
  std::int64_t micro_batch = 1;  ///< sequences
  RecomputeMode recompute = RecomputeMode::none;
  /// As RecomputeConfig::blocks; none: the config's.
  std::optional<std::int64_t> recompute_blocks = {};
  /// As RecomputeConfig::values and first_values, if recompute_blocks is set.
  std::vector<std::string> recompute_values = {}, recompute_first_values = {};
  std::optional<KeepWeights> keep_weights = {};  ///< none: the config's
  /// Whether weights are gathered once while answers of [rl] are written (RlConfig::hold_weights);
  /// none: the config's.
  std::optional<bool> hold_weights = {};
  StepTime time = {};
  std::int64_t memory_bytes = 0;  ///< peak of a rank's arena
  /// That of writing answers, which memory_bytes includes; 0: none.
  std::int64_t rollout_bytes = 0;

  void set_recomputation(const RecomputeConfig& config) {
    recompute = config.mode;
    recompute_blocks = config.blocks;
    recompute_values = config.values;
    recompute_first_values = config.first_values;
  }
  std::int64_t micro_batch_count(std::int64_t global_batch) const {
    return batch_share(global_batch, micro_batch * batch_coordinates(grid));
  }
};

/// The costs that rank grids.
enum class CostModel {
  simulated,  ///< time of a step, simulated with the machine's figures
  paper,      ///< the paper's communication time (paper_model.h), without compute and overlap
};

inline constexpr std::array<std::string_view, 2> kCostModels = {"simulated", "paper"};

struct SearchOptions {
  int devices = 1;
  Strategy strategy = Strategy::grid_4d;
  CostModel cost = CostModel::simulated;
  int top = 5;                                  ///< number of plans, one per grid
  std::int64_t micro_batch = 0;                 ///< 0: free
  std::optional<RecomputeMode> recompute = {};  ///< none: free
  bool keep_weights = true;  ///< whether plans may keep gathered weights if the config does not
  GridShape fixed{.x = 0, .y = 0, .z = 0, .data = 0, .context = 0, .experts = 0};  ///< 0: free
  ProgressTarget progress = {};                 ///< shows how far the search is
  std::function<void()> note_progress = [] {};  ///< called for each prediction, by several threads
};

struct SearchResult {
  std::vector<Plan> plans;       ///< fastest first; times and memory are predict()'s
  int grids = 0;                 ///< allowed by the strategy and `fixed`
  int ruled_out = 0;             ///< of those, too slow by a bound of several, and not examined
  int cut = 0;                   ///< of the others, grids that can cut model and batch
  int fit = 0;                   ///< of those, grids that fit into memory with some settings
  int simulated = 0;             ///< of those, grids that were searched in full
  std::optional<Plan> smallest;  ///< if none fits: the plan with the least memory, without times
};

/// Ranks the grids of options.devices ranks for the run's model, batch and settings, each with its
/// fastest micro-batch and recomputation that fit into a device's memory.
///
/// Bounds rule out most grids: of families of grids, then of a grid, whose optimistic time is that
/// of a step whose batch is one micro-batch, without recomputation. The most promising are searched
/// in full, until no other can be among the best. Within a grid, plans are compared by estimate();
/// those that may be among the best are then predicted with all blocks. Each plan takes the least
/// recomputation that fits (recompute_budget.h), unless the mode is fixed; with CostModel::paper
/// none or full.
///
/// Plans are compared with the run's parallelism.keep_weights. If that is none, the best plans
/// then keep gathered weights where this fits and saves 2 % of the time, unless
/// options.keep_weights forbids it, and not with CostModel::paper.
///
/// Of a run that may write answers of [rl], grids on which this does not fit have no plan. Its
/// prompts are taken to be as long as training.seq_len allows. If rl.hold_weights is true, weights
/// are gathered over z once while answers are written where this fits and does not take longer
/// than gathering them at each use; its time is simulated. It is not part of a plan's time.
///
/// The run's grid, micro_batch and recomputation are ignored. Throws UsageError if no grid can cut
/// the model and the batch, or if the machine has no rates for the run's type.
SearchResult search(const PreparedRun& run, const Machine& machine, const SearchOptions& options);

/// The run with the plan's settings, for `axonn train`.
PreparedRun planned(const PreparedRun& run, const Plan& plan);

/// The least of devices · 2, · 4, ... up to `most` on which some grid fits; 0: none.
int devices_that_fit(const PreparedRun& run, const Machine& machine, SearchOptions options,
                     int most = 1 << 17);

}  // namespace axonn
