#include "axonn/ranks/parallel/flat_layout.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;

namespace {

/// A matrix, two parameters whose blocks lie together, and two vectors.
std::vector<ParameterSpec> some_parameters() {
  return {{.name = "up",
           .layout = {.rows = 24, .cols = 10, .row_axis = Axis::x, .col_axis = Axis::y},
           .decays = true},
          {.name = "gate", .layout = {.rows = 8, .cols = 6, .row_axis = Axis::x}, .decays = true},
          {.name = "value", .layout = {.rows = 4, .cols = 6, .row_axis = Axis::x}, .decays = true},
          {.name = "norm", .layout = {.rows = 10, .row_axis = Axis::y}},
          {.name = "bias", .layout = {.rows = 7}}};
}

FlatLayout layout_of(const std::vector<ParameterSpec>& specs, const GridShape& shape) {
  FlatLayout layout(shape, Holders::all_of_z);
  for (const ParameterSpec& spec : specs) layout.add(spec, spec.name == "value");
  return layout;
}

const std::vector<GridShape> kShapes = {{},           {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 3, 1},
                                        {1, 1, 1, 3}, {2, 2, 2, 2}, {4, 1, 2, 3}, {1, 2, 5, 2}};

}  // namespace

TEST(FlatLayout, BeginsBlocksOn64BytesButThoseThatFollowWhereTheLastOneEnds) {
  const auto specs = some_parameters();
  const FlatSizes sizes = layout_of(specs, {2, 1, 2, 1}).sizes({});
  // Blocks of 12 x 10, 4 x 6 and 2 x 6 decay; vectors of 10 and 7 do not.
  EXPECT_THAT(sizes.offsets, testing::ElementsAre(0, 128, 152, 192, 224));
  EXPECT_EQ(sizes.decayed, 192);
  EXPECT_EQ(sizes.flat, 256);
  EXPECT_EQ(sizes.shard, 128);
  EXPECT_EQ(sizes.piece, 128);
}

TEST(FlatLayout, GivesEachElementOneOwnerOnEveryGrid) {
  const auto specs = some_parameters();
  for (const GridShape& shape : kShapes) {
    SCOPED_TRACE("grid " + to_string(shape));
    const FlatLayout layout = layout_of(specs, shape);
    std::map<std::string, std::vector<int>> owners;
    for (const ParameterSpec& spec : specs) owners[spec.name].resize(spec.layout.count());
    std::int64_t owned = 0, count = 0;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      const Coords at = coords_of(shape, rank);
      const auto piece = layout.piece_slices(at, layout.sizes(at));
      for (const auto& [begin, end] : owned_ranges(piece)) owned += end - begin;
      for (const auto& [spec, slice] : piece)
        for (std::int64_t e = slice.begin; e < slice.begin + slice.count(); ++e)
          owners[spec->name][(slice.row + e / slice.cols) * spec->layout.cols + slice.col +
                             e % slice.cols] += slice.owned;
    }
    for (const auto& [name, each] : owners) {
      EXPECT_THAT(each, testing::Each(1)) << name;
      count += std::ssize(each);
    }
    EXPECT_EQ(owned, count);
  }
}

TEST(FlatLayout, FillsTheFlatBlockWithBlocksAndGaps) {
  const auto specs = some_parameters();
  for (const GridShape& shape : kShapes) {
    SCOPED_TRACE("grid " + to_string(shape));
    const FlatLayout layout = layout_of(specs, shape);
    const FlatSizes sizes = layout.sizes({});
    std::vector<int> times(sizes.flat);
    const auto fill = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++times[i];
    };
    for (const auto& [begin, end] : layout.gaps({}, sizes)) fill(begin, end);
    for (std::size_t i = 0; i < specs.size(); ++i)
      fill(sizes.offsets[i], sizes.offsets[i] + specs[i].layout.local_count(shape));
    EXPECT_THAT(times, testing::Each(1));
    EXPECT_EQ(sizes.piece * shape.z * shape.data, sizes.flat);
  }
}

TEST(FlatLayout, RefusesAParameterThatItDoesNotHave) {
  const auto specs = some_parameters();
  const FlatLayout layout = layout_of(specs, {});
  EXPECT_THROW(layout.slices({}, layout.sizes({}), specs.size()), Error);
}
