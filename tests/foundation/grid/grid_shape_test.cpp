#include "axonn/foundation/grid/grid_shape.h"

#include <set>

#include <gmock/gmock.h>

using namespace axonn;
using testing::SizeIs;

TEST(Grids, AreAllOrderedFactorisationsEachOnce) {
  // 2^n has binomial(n + 3, 3) factorisations into four; 12 = 2^2 · 3 has 10 · 4.
  EXPECT_THAT(grids_of(1), SizeIs(1));
  EXPECT_THAT(grids_of(8), SizeIs(20));
  EXPECT_THAT(grids_of(12), SizeIs(40));
  EXPECT_THAT(grids_of(32768), SizeIs(816));
  std::set<std::string> names;
  for (const GridShape& grid : grids_of(360)) {
    EXPECT_EQ(grid.ranks(), 360);
    names.insert(to_string(grid));
  }
  EXPECT_THAT(names, SizeIs(grids_of(360).size()));
}
