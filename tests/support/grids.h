#pragma once

#include <vector>

#include "axonn/comm/grid.h"

#include "tests/support/sanitized.h"

namespace axonn::testing_support {

/// All grids of `ranks` ranks: every factorisation into x · y · z · data.
inline std::vector<GridShape> grids_of(int ranks) {
  std::vector<GridShape> grids;
  for (int x = 1; x <= ranks; ++x)
    for (int y = 1; x * y <= ranks; ++y)
      for (int z = 1; x * y * z <= ranks; ++z)
        if (ranks % (x * y * z) == 0) grids.push_back({x, y, z, ranks / (x * y * z)});
  return grids;
}

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
