#include "axonn/ranks/comm/dry_world.h"

#include <array>

#include <gtest/gtest.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/grid.h"

using namespace axonn;

TEST(DryWorld, KnowsTheRanksCoordinatesOnEveryAxis) {
  const GridShape shape{2, 3, 1, 4};
  const auto world = make_dry_world(shape, 17);
  const Grid grid(*world, shape);
  EXPECT_EQ(grid.coords(), coords_of(shape, 17));
  EXPECT_EQ(grid.along(Axis::y).size(), 3);
  EXPECT_EQ(grid.along(Axis::data).rank(), 2);
  EXPECT_THROW(make_dry_world(shape, 24), Error);
  EXPECT_THROW(world->split(0, "neighbours"), Error);
}

TEST(DryWorld, RecordsStartsAndWaitsOfGroupsOfSeveralRanksAndMovesNoData) {
  const GridShape shape{2, 1, 4, 1};
  Recording recording;
  const auto world = make_dry_world(shape, 5, &recording);
  const Grid grid(*world, shape);
  std::array<float, 2> mine{1, 2};
  std::array<float, 8> all{};
  Work work = grid.along(Axis::z).all_gather(buffer(std::span<float>(all)),
                                             buffer(std::span<float>(mine)), "w");
  grid.along(Axis::y).all_reduce(buffer(std::span<float>(mine))).wait();
  ASSERT_EQ(recording.events.size(), 1);
  work.wait();
  ASSERT_EQ(recording.events.size(), 2);
  const auto& start = std::get<Recording::Start>(recording.events[0]);
  EXPECT_EQ(start.group + ' ' + start.operation + ' ' + start.label, "z all_gather w");
  EXPECT_EQ(start.ranks, 4);
  EXPECT_EQ(start.bytes, 32);
  EXPECT_EQ(std::get<Recording::Wait>(recording.events[1]).started, 0);
  EXPECT_EQ(all, (std::array<float, 8>{}));
  EXPECT_EQ(mine, (std::array<float, 2>{1, 2}));
}

TEST(DryWorld, ChecksArgumentsAsEveryTransportDoes) {
  const auto world = make_dry_world({2, 1, 1, 1}, 0);
  std::array<float, 3> three{};
  std::array<float, 4> four{};
  EXPECT_THROW(world->all_gather(buffer(std::span<float>(three)), buffer(std::span<float>(four))),
               Error);
}
