#pragma once

#include <vector>

#include "axonn/foundation/grid/grid_shape.h"

#include "tests/support/sanitized.h"

namespace axonn::testing_support {

/// Two grids on which every axis is cut.
inline std::vector<GridShape> two_grids() { return {{2, 2, 2, 1}, {3, 1, 1, 2}}; }

/// Every grid of 2, 3, 4, 6 and 8 ranks. Under sanitizers two of them.
inline std::vector<GridShape> every_grid() {
  if (sanitized()) return two_grids();
  std::vector<GridShape> grids;
  for (int ranks : {2, 3, 4, 6, 8})
    for (const GridShape& grid : grids_of(ranks)) grids.push_back(grid);
  return grids;
}

/// Ten grids on which every axis is cut alone, in pairs, in threes, and more than two ways: for
/// variants of what is tested on every grid. Under sanitizers two of them.
inline std::vector<GridShape> ten_grids() {
  if (sanitized()) return two_grids();
  return {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 1, 1},
          {1, 1, 2, 2}, {2, 1, 4, 1}, {1, 3, 1, 2}, {2, 2, 2, 1}, {1, 2, 2, 2}};
}

}  // namespace axonn::testing_support
