#pragma once

#include <vector>

#include "axonn/comm/grid.h"

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

}  // namespace axonn::testing_support
