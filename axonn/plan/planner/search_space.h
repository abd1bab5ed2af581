#pragma once

#include <cstdint>
#include <vector>

#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/search.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// Grids with the same x and y, and perhaps with the same numbers of ranks that share sequences and
/// experts.
struct GridFamily {
  std::vector<GridShape> grids;
  bool same_factors = false;
};

/// The grids that a search considers, and the micro-batches that each may have. The run and the
/// options must outlive it.
class SearchSpace {
 public:
  SearchSpace(const PreparedRun& run, const Machine& machine, const SearchOptions& options);

  /// The grids that the strategy and options.fixed allow, each with every number of ranks that may
  /// share sequences, and experts.
  std::vector<GridShape> grids() const;

  /// These grids by x and y, and if `by_factors` also by context and experts.
  static std::vector<GridFamily> families_of(const std::vector<GridShape>& grids, bool by_factors);
  /// The grid of a family whose ranks compute least: with the least padding, then the fewest parts
  /// of sequences and the fewest experts on a rank; if possible with z and data above 1.
  const GridShape& least_of(const GridFamily& family) const;

  /// The most sequences of a step that a batch coordinate of this grid has.
  std::int64_t share(const GridShape& grid) const;

  /// The useful micro-batch sizes, ascending; empty if the grid cannot cut the batch. If p ranks in
  /// place of one share sequences, p times as many of these give every rank the same rows, with
  /// more communication.
  std::vector<std::int64_t> useful_sizes(const GridShape& grid) const;

 private:
  bool wanted(const GridShape& grid) const;
  std::vector<std::int64_t> micro_batch_sizes(const GridShape& grid) const;
  std::vector<GridShape> with_all_factors(GridShape grid) const;
  std::vector<int> contexts(const GridShape& grid) const;
  std::vector<int> holders_of_experts(const GridShape& grid) const;

  const PreparedRun& run_;
  const int devices_per_node_;
  const SearchOptions& options_;
};

}  // namespace axonn
