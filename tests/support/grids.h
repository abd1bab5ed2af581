#pragma once

#include <cstdlib>
#include <vector>

#include "axonn/foundation/grid/grid_shape.h"

#include "tests/support/sanitized.h"

namespace axonn::testing_support {

/// Two grids on which every axis is cut.
inline std::vector<GridShape> two_grids() { return {{2, 2, 2, 1}, {3, 1, 1, 2}}; }

/// Ten grids on which every axis is cut alone, in pairs, in threes, and more than two ways.
inline std::vector<GridShape> ten_grids() {
  return {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 1, 1},
          {1, 1, 2, 2}, {2, 1, 4, 1}, {1, 3, 1, 2}, {2, 2, 2, 1}, {1, 2, 2, 2}};
}

/// Four grids on which every pair of axes is cut together.
inline std::vector<GridShape> pairwise_grids() {
  return {{2, 2, 2, 1}, {1, 3, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2}};
}

/// Whether tests take their time: `make test-all` sets this.
inline bool at_length() { return std::getenv("AXONN_TEST_AT_LENGTH") != nullptr; }

/// For what must hold on every grid: ten of them; at length, all of 2, 3, 4, 6 and 8 ranks. Under
/// sanitizers two.
inline std::vector<GridShape> many_grids() {
  if (sanitized()) return two_grids();
  if (!at_length()) return ten_grids();
  std::vector<GridShape> grids;
  for (int ranks : {2, 3, 4, 6, 8})
    for (const GridShape& grid : grids_of(ranks)) grids.push_back(grid);
  return grids;
}

/// For variants of what many_grids() tests: pairwise_grids(); at length, ten. Under sanitizers two.
inline std::vector<GridShape> few_grids() {
  if (sanitized()) return two_grids();
  return at_length() ? ten_grids() : pairwise_grids();
}

}  // namespace axonn::testing_support
