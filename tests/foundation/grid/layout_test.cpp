#include "axonn/foundation/grid/layout.h"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/embedding.h"

#include "tests/support/grids.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

struct NamedLayout {
  std::string name;
  Layout layout;
};

Layout over(std::int64_t rows, std::int64_t cols, std::optional<Axis> row_axis,
            std::optional<Axis> col_axis) {
  return {.rows = rows, .cols = cols, .row_axis = row_axis, .col_axis = col_axis, .segments = {}};
}

Layout qkv(std::int64_t kv_heads, bool bias) {
  const Heads heads{24, kv_heads, 2};
  Layout layout = over(heads.qkv_width(), bias ? 1 : 24, Axis::x, Axis::y);
  if (bias) layout.col_axis.reset();
  layout.segments = heads.qkv_segments();
  return layout;
}

std::vector<NamedLayout> layouts() {
  std::vector<NamedLayout> all{
      {"up", over(96, 24, Axis::x, Axis::y)},     {"down", over(24, 96, Axis::y, Axis::x)},
      {"bias over x", over(384, 1, Axis::x, {})}, {"norm", over(96, 1, Axis::y, {})},
      {"positions", over(7, 96, {}, Axis::y)},    {"on all", over(5, 3, {}, {})},
      {"tokens", vocabulary_layout(251, 24)},     {"few tokens", vocabulary_layout(5, 24)}};
  for (std::int64_t kv_heads : {24, 12, 8, 6, 4, 3, 2, 1})
    for (bool bias : {false, true})
      all.push_back({concat("qkv ", kv_heads, bias ? " bias" : ""), qkv(kv_heads, bias)});
  return all;
}

/// Calls f(coords) for every rank with z = data = 0; other ranks have the same blocks.
void for_blocks(const GridShape& shape, const std::function<void(const Coords&)>& f) {
  for (int rank = 0; rank < shape.x * shape.y; ++rank) f(coords_of(shape, rank));
}

std::string refusal(const Layout& layout, const GridShape& shape) {
  try {
    layout.check("w", shape);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

}  // namespace

TEST(Layout, EveryElementIsOwnedByExactlyOneRankOnEveryGrid) {
  for (int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const GridShape& shape : grids_of(ranks)) {
      for (const auto& [name, layout] : layouts()) {
        SCOPED_TRACE(name + " on grid " + to_string(shape));
        layout.check(name, shape);
        std::vector<int> owners(layout.count());
        for_blocks(shape, [&](const Coords& at) {
          for (const Slice& slice : layout.slices(shape, at)) {
            for (std::int64_t e = slice.begin; e < slice.end; ++e) {
              const std::int64_t row = slice.row + e / slice.cols, col = slice.col + e % slice.cols;
              owners.at(row * layout.cols + col) += slice.owned;
            }
          }
        });
        EXPECT_EQ(std::ranges::count(owners, 1), layout.count());
      }
    }
  }
}

TEST(Layout, SlicesLieInTheBlockWithoutOverlap) {
  for (const GridShape& shape : grids_of(8)) {
    for (const auto& [name, layout] : layouts()) {
      SCOPED_TRACE(name + " on grid " + to_string(shape));
      for_blocks(shape, [&](const Coords& at) {
        std::vector<int> used(layout.local_count(shape));
        for (const Slice& slice : layout.slices(shape, at)) {
          EXPECT_EQ(slice.begin, 0);
          EXPECT_EQ(slice.end, slice.rows * slice.cols);
          for (std::int64_t i = 0; i < slice.count(); ++i) ++used.at(slice.offset + i);
        }
        EXPECT_EQ(std::ranges::count_if(used, [](int times) { return times > 1; }), 0);
      });
    }
  }
}

TEST(Layout, ARankHasTheKeyValueHeadsThatItsQueryHeadsRead) {
  for (std::int64_t kv_heads : {24, 12, 8, 6, 4, 3, 2, 1}) {
    for (int ways : {1, 2, 3, 4, 6, 8, 12, 24}) {
      for (int at = 0; at < ways; ++at) {
        const UnitRange units = shared_units(kv_heads, 24, ways, at);
        const std::int64_t group = 24 / kv_heads, mine = 24 / ways;
        EXPECT_EQ(units.first, at * mine / group);
        EXPECT_EQ(units.first + units.count - 1, ((at + 1) * mine - 1) / group);
        EXPECT_LE(units.count, shared_room(kv_heads, 24, ways));
      }
    }
  }
}

TEST(Layout, FourKeyValueHeadsAreSharedOnlyWhereRanksReadTheSame) {
  // 24 query heads, 6 per key-value head: of 6 ranks with 4 each, the second reads heads 0 and 1.
  const Layout layout = qkv(4, false);
  for (int x : {1, 2, 4}) EXPECT_FALSE(layout.shared({x, 1, 1, 1})) << x;
  for (int x : {3, 6, 8, 12, 24}) EXPECT_TRUE(layout.shared({x, 1, 1, 1})) << x;
  EXPECT_FALSE(qkv(24, false).shared({8, 1, 1, 1}));
}

TEST(Layout, TheExampleInItsCommentIsTrue) {
  const Layout layout = over(8, 4, Axis::x, Axis::y);
  const GridShape shape{2, 2, 1, 1};
  EXPECT_THAT(layout.slices(shape, Coords{{1, 0, 0, 0}}), ElementsAre(Slice{.row = 4,
                                                                            .rows = 4,
                                                                            .col = 0,
                                                                            .cols = 2,
                                                                            .begin = 0,
                                                                            .end = 8,
                                                                            .offset = 0,
                                                                            .owned = true}));
}

TEST(Layout, ClipCutsSlicesAndCountsOffsetsFromBegin) {
  const std::vector<Slice> slices{
      {.row = 0, .rows = 5, .cols = 2, .begin = 0, .end = 10, .offset = 4, .owned = true},
      {.row = 9, .rows = 1, .cols = 2, .begin = 0, .end = 2, .offset = 20, .owned = false}};
  const std::vector<Slice> middle = clip(slices, 6, 12);
  ASSERT_EQ(middle.size(), 1);
  EXPECT_EQ(middle[0].begin, 2);
  EXPECT_EQ(middle[0].end, 8);
  EXPECT_EQ(middle[0].offset, 0);
  EXPECT_EQ(middle[0].rows, 5) << "clip must not change the rectangle";
  const std::vector<Slice> last = clip(slices, 13, 30);
  ASSERT_EQ(last.size(), 2);
  EXPECT_EQ(last[0].begin, 9);
  EXPECT_EQ(last[0].offset, 0);
  EXPECT_EQ(last[1].offset, 7);
  EXPECT_THAT(clip(slices, 14, 20), IsEmpty());
  EXPECT_THAT(clip(slices, 0, 0), IsEmpty());
}

TEST(Layout, ClippedPiecesAddUpToTheWhole) {
  for (const auto& [name, layout] : layouts()) {
    const GridShape shape{2, 3, 1, 1};
    if (layout.cols % 3 != 0 && layout.col_axis == Axis::y) continue;
    const std::vector<Slice> whole = layout.slices(shape, {});
    const std::int64_t size = layout.local_count(shape);
    std::int64_t count = 0, clipped = 0;
    for (const Slice& slice : whole) count += slice.count();
    for (std::int64_t begin = 0; begin < size; begin += 37)
      for (const Slice& slice : clip(whole, begin, std::min(size, begin + 37))) {
        clipped += slice.count();
        EXPECT_LE(slice.offset + slice.count(), 37);
      }
    EXPECT_EQ(clipped, count) << name;
  }
}

TEST(Layout, RefusesExtentsThatDoNotDivideAndNamesThoseThatDo) {
  EXPECT_EQ(refusal(over(6, 4, Axis::x, Axis::y), {4, 1, 1, 1}),
            "w: 6 rows cannot be cut over x = 4; x must be one of 1, 2, 3, 6");
  EXPECT_EQ(refusal(over(6, 4, Axis::y, Axis::x), {1, 4, 1, 1}),
            "w: 6 rows cannot be cut over y = 4; y must be one of 1, 2, 3, 6");
  EXPECT_EQ(refusal(over(8, 6, Axis::x, Axis::y), {1, 4, 1, 1}),
            "w: a width of 6 cannot be cut over y = 4; y must be one of 1, 2, 3, 6");
}

TEST(Layout, PaddingIsCutOverAnyNumberOfRanks) {
  for (int x : {1, 2, 3, 5, 7, 8, 300}) vocabulary_layout(251, 96).check("tokens", {x, 1, 1, 1});
  EXPECT_EQ(vocabulary_layout(251, 96).local_rows({4, 1, 1, 1}), 63);
  EXPECT_THAT(vocabulary_layout(5, 96).slices({4, 1, 1, 1}, Coords{{3, 0, 0, 0}}), IsEmpty());
}

TEST(Layout, UnitsOfColumnsGoToTheFirstRanksOfAnUnevenAxis) {
  Layout layout = over(4, 20, Axis::y, Axis::x);  // five heads of four columns
  layout.col_unit = 4;
  const GridShape shape{4, 1, 1, 1};
  layout.check("w", shape);
  EXPECT_EQ(layout.local_cols(shape), 8);
  const std::vector<std::int64_t> want{8, 8, 4, 0};
  for (int x = 0; x < 4; ++x) {
    const Coords at{{x, 0, 0, 0}};
    EXPECT_EQ(layout.cols_at(shape, at), want[x]);
    const std::vector<Slice> slices = layout.slices(shape, at);
    if (want[x] == 0) {
      EXPECT_THAT(slices, IsEmpty());
      continue;
    }
    ASSERT_EQ(slices.size(), 1U);
    EXPECT_EQ(slices[0].col, 8 * x);
    EXPECT_EQ(slices[0].cols, want[x]);
    EXPECT_EQ(slices[0].count(), 4 * want[x]) << "the rest of the room is behind the block";
  }
  EXPECT_FALSE(layout.even_cols(shape));
  EXPECT_TRUE(layout.even_cols({5, 1, 1, 1}));
  layout.col_unit = 3;
  EXPECT_THROW(layout.check("w", shape), Error);
}

TEST(Layout, QueryHeadsThatAreCutUnevenlyReadTheirKeyValueHeads) {
  // Nine query heads, three for each key-value head, on four ranks: 3, 3, 3 and none.
  const auto units = [](int ways, int at) { return shared_units(3, 9, ways, at); };
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(units(4, at).first, at);
    EXPECT_EQ(units(4, at).count, 1);
  }
  EXPECT_EQ(units(4, 3).count, 0);
  // On two ranks 5 and 4: the first reads two, the second two, of which one is the same.
  EXPECT_EQ(units(2, 0).count, 2);
  EXPECT_EQ(units(2, 1).first, 1);
  EXPECT_EQ(units(2, 1).count, 2);
  EXPECT_EQ(shared_room(3, 9, 2), 3) << "room for the tenth query head, which is padding";
}

TEST(Layout, RefusesAxesAndReadersThatNoGridHas) {
  EXPECT_THROW(over(4, 4, Axis::x, Axis::x).check("w", {}), Error);
  EXPECT_THROW(over(4, 4, Axis::z, {}).check("w", {}), Error);
  EXPECT_THROW(over(4, 4, Axis::x, Axis::data).check("w", {}), Error);
  Layout layout = over(4, 1, Axis::x, {});
  layout.segments = {{.rows = 4, .kind = Segment::Kind::shared, .readers = 0}};
  EXPECT_THROW(layout.check("w", {}), Error);
}

TEST(Layout, RefusesSegmentsThatDoNotAddUp) {
  Layout layout = over(10, 1, Axis::x, {});
  layout.segments = {{.rows = 6}, {.rows = 3}};
  EXPECT_THROW(layout.check("w", {}), Error);
  layout.segments = {{.rows = 10, .unit = 4}};
  EXPECT_THROW(layout.check("w", {}), Error);
}
