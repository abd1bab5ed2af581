#pragma once

#include <algorithm>
#include <vector>

#include "axonn/plan/planner/paper_model.h"

namespace axonn::testing_support {

struct PaperRanked {
  GridShape grid;
  PaperSeconds seconds;
};

/// The grids, fastest first; equal ones stay in their order.
inline std::vector<PaperRanked> paper_ranking(const std::vector<GridShape>& grids,
                                              const ModelConfig& model, const PaperBatch& batch,
                                              const Machine& machine) {
  std::vector<PaperRanked> ranked;
  for (const GridShape& grid : grids)
    ranked.push_back({grid, paper_seconds(model, batch, machine, grid)});
  std::ranges::stable_sort(ranked, {}, [](const PaperRanked& one) { return one.seconds.total(); });
  return ranked;
}

}  // namespace axonn::testing_support
