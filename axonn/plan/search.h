#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "axonn/plan/grids.h"
#include "axonn/plan/machine.h"
#include "axonn/plan/simulate.h"
#include "axonn/train/config.h"

namespace axonn {

/// One way to run a step, and what it takes. Plain data.
struct Plan {
  GridShape grid;
  std::int64_t micro_batch = 1;  ///< sequences
  RecomputeMode recompute = RecomputeMode::none;
  StepTime time;
  std::int64_t memory_bytes = 0;  ///< peak of a rank's arena
};

/// What grids are ranked by.
enum class CostModel {
  simulated,  ///< a step, played on the machine's figures
  paper,  ///< the paper's seconds of communication alone (paper_model.h): no compute, no overlap
};

inline constexpr std::array<std::string_view, 2> kCostModels = {"simulated", "paper"};

struct SearchOptions {
  int devices = 1;
  Strategy strategy = Strategy::grid_4d;
  CostModel cost = CostModel::simulated;
  int top = 5;                                         ///< plans, each of another grid
  std::int64_t micro_batch = 0;                        ///< 0: free
  std::optional<RecomputeMode> recompute = {};         ///< none: free
  GridShape fixed{.x = 0, .y = 0, .z = 0, .data = 0};  ///< extents; 0: free
};

struct SearchResult {
  std::vector<Plan>
      plans;          ///< fastest first; memory is exact, seconds are estimate_whole_depth()'s
  int grids = 0;      ///< that the strategy allows
  int cut = 0;        ///< of those, that can cut model and batch
  int fit = 0;        ///< of those, that fit into memory in some way
  int simulated = 0;  ///< of those, that were looked at closely
  std::optional<Plan> smallest;  ///< where none fits: what takes the least memory; no times
};

/// Ranks the grids of options.devices ranks for config's model, batch and settings: each with the
/// micro-batch and the recomputation that make it fastest among those that fit into a device.
///
/// A grid's optimistic time is that of a step in one micro-batch that is never recomputed unless it
/// must be, whatever memory says. Grids are looked at closely in that order, until the optimistic
/// time is beyond the last plan's. The best are then gone through in their whole depth.
///
/// config is validated and resolved and has a vocab; its grid, micro_batch and recomputation do not
/// matter. Errors: UsageError where no grid can cut the model and the batch, and where the machine
/// has no rates for the config's type.
SearchResult search(const Config& config, const Machine& machine, const SearchOptions& options);

/// config as the plan runs it: what `axonn train` is given.
Config planned(Config config, const Plan& plan);

/// The fewest devices, of devices · 2, · 4, ... up to `most`, that some grid fits on; 0: none.
int devices_that_fit(const Config& config, const Machine& machine, SearchOptions options,
                     int most = 1 << 17);

}  // namespace axonn
