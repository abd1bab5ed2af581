#include "axonn/ranks/comm/grid.h"

#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// The world ranks of a group of this rank.
std::vector<int> members(const Grid& grid, Communicator& group) {
  std::vector<int> ranks(group.size());
  int mine = grid.world().rank();
  group.all_gather(buffer(std::span(ranks)), buffer(std::span(&mine, 1))).wait();
  return ranks;
}
std::vector<int> members(const Grid& grid, Axis axis) { return members(grid, grid.along(axis)); }

}  // namespace

TEST(Grid, MakesTheGroupsThatItsHeaderLists) {
  run_ranks(8, [](Communicator& world) {
    const Grid grid(world, {2, 2, 1, 2});
    const int r = world.rank();
    EXPECT_EQ(members(grid, Axis::x), (std::vector{r & ~1, r | 1}));
    EXPECT_EQ(members(grid, Axis::y), (std::vector{r & ~2, r | 2}));
    EXPECT_EQ(members(grid, Axis::z), (std::vector{r}));
    EXPECT_EQ(members(grid, Axis::data), (std::vector{r & ~4, r | 4}));
    for (Axis axis : kAxes) {
      EXPECT_EQ(grid.along(axis).rank(), grid.coord(axis));
      EXPECT_EQ(grid.along(axis).size(), grid.extent(axis));
    }
  });
}

TEST(Grid, OrdersEveryGroupByItsAxisAlsoOnOddExtents) {
  run_ranks(30, [](Communicator& world) {
    const Grid grid(world, {5, 1, 3, 2});
    for (Axis axis : kAxes) {
      const std::vector<int> ranks = members(grid, axis);
      for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
        Coords want = grid.coords();
        want.at_axis[static_cast<int>(axis)] = i;
        EXPECT_EQ(coords_of(grid.shape(), ranks[i]), want);
      }
    }
  });
}

TEST(Grid, MakesGroupsThatShareExpertsOfNeighboursAlongZ) {
  run_ranks(4, [](Communicator& world) {
    const Grid grid(world, {.z = 4, .experts = 2});
    const int r = world.rank();
    EXPECT_EQ(members(grid, grid.experts()), (std::vector{r & ~1, r | 1}));
    EXPECT_EQ(members(grid, grid.same_experts()), (std::vector{r & 1, (r & 1) + 2}));
  });
  for (const int experts : {2, 4})
    run_ranks(16, [experts](Communicator& world) {
      const GridShape shape{.x = 2, .z = 4, .data = 2, .context = 2, .experts = experts};
      const Grid grid(world, shape);
      std::vector<int> sharing, same, context;
      for (int r = 0; r < world.size(); ++r) {
        const Coords at = coords_of(shape, r), &mine = grid.coords();
        const int z = at.at(Axis::z), my_z = mine.at(Axis::z);
        if (at.at(Axis::x) != mine.at(Axis::x) || at.at(Axis::data) != mine.at(Axis::data))
          continue;
        if (z / experts == my_z / experts) sharing.push_back(r);
        if (z % experts == my_z % experts) same.push_back(r);
        if (z / 2 == my_z / 2) context.push_back(r);
      }
      EXPECT_EQ(members(grid, grid.experts()), sharing);
      EXPECT_EQ(members(grid, grid.same_experts()), same);
      EXPECT_EQ(members(grid, grid.context()), context);
      EXPECT_EQ(grid.experts().rank(), experts_part(shape, grid.coords()));
    });
}

TEST(Grid, HoldsTheSameExpertsOnAllOfZUnlessTheyAreShared) {
  run_ranks(2, [](Communicator& world) {
    const Grid grid(world, {.z = 2});
    EXPECT_EQ(&grid.same_experts(), &grid.along(Axis::z));
  });
}

TEST(Grid, RefusesFactorsThatDoNotDivideZ) {
  const auto self = make_self();
  for (const int experts : {0, 3})
    EXPECT_THAT(([&] { Grid(*self, {.z = 4, .experts = experts}); }),
                ThrowsMessage<UsageError>("[parallelism] experts = " + std::to_string(experts) +
                                          " does not divide z = 4; set it to a divisor of z"));
}

TEST(Grid, WorksOnOneRank) {
  const auto self = make_self();
  const Grid grid(*self, {});
  for (Axis axis : kAxes) EXPECT_EQ(grid.along(axis).size(), 1);
  EXPECT_EQ(grid.describe(), "rank 0 (x 0, y 0, z 0, data 0)");
  EXPECT_THAT([&] { grid.context(); }, ThrowsMessage<Error>(HasSubstr("context is 1")));
  EXPECT_THAT([&] { grid.experts(); }, ThrowsMessage<Error>(HasSubstr("experts is 1")));
}

TEST(Grid, DescribesARankByItsCoordinates) {
  run_ranks(6, [](Communicator& world) {
    const Grid grid(world, {2, 1, 3, 1});
    if (world.rank() != 5) return;
    EXPECT_EQ(grid.describe(), "rank 5 (x 1, y 0, z 2, data 0)");
  });
}

TEST(Grid, RefusesAShapeThatDoesNotMatchTheNumberOfRanks) {
  const auto self = make_self();
  EXPECT_THAT(
      ([&] {
        Grid(*self, {2, 1, 2, 1});
      }),
      ThrowsMessage<UsageError>("grid 2,1,2,1 needs 4 ranks, but there are 1; start as many "
                                "as it needs, or change [parallelism] x, y, z and data"));
  EXPECT_THAT(([&] {
                Grid(*self, {-1, -1, 1, 1});
              }),
              ThrowsMessage<UsageError>(HasSubstr("below 1")));
}

TEST(ParseGrid, ReadsTheOutputOfToString) {
  const GridShape shape{3, 1, 4, 10};
  EXPECT_EQ(to_string(shape), "3,1,4,10");
  EXPECT_EQ(parse_grid(to_string(shape)), shape);
  EXPECT_EQ(parse_grid("1, 2, 3, 4"), (GridShape{1, 2, 3, 4}));
}

TEST(ParseGrid, RefusesAnythingElseAndQuotesIt) {
  for (const char* text : {"", "2", "2,1,2", "2,1,2,1,1", "2,1,2,1 ", "0,1,1,1", "-1,1,1,1",
                           "a,1,1,1", "1,,1,1", "1.5,1,1,1", "99999999999,1,1,1", "1 1 1 1"})
    EXPECT_THAT([&] { parse_grid(text); }, ThrowsMessage<UsageError>(HasSubstr(text))) << text;
  EXPECT_THAT([] { parse_grid("65536,65536,1,1"); },
              ThrowsMessage<UsageError>(HasSubstr("more than")));
}
