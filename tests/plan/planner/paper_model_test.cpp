#include "axonn/plan/planner/paper_model.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/plan/planner/paper_ranking.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr double kGiB = 0x1p30;

/// Has the products (8, 24), (8, 8) transposed, (8, 32), (32, 8) transposed: 192 + 64 + 256 + 256 =
/// 768 elements of weights.
const ModelConfig kTiny = {.layers = 1, .hidden = 8, .heads = 2, .kv_heads = 2, .ffn = 32};

/// Groups of two neighbours have 2 bytes/s, other groups inside a node 1, and a node's links 16.
Machine tiny_machine() {
  Machine machine;
  machine.devices_per_node = 4;
  machine.node_bytes_per_s = 16;
  machine.device_bytes_per_s = 1;
  machine.groups = {{.inner = 1, .size = 2, .bytes_per_s = 2}};
  return machine;
}

std::vector<GridShape> powers_of_two(int devices) {
  std::vector<GridShape> grids;
  for (int x = 1; x <= devices; x *= 2)
    for (int y = 1; x * y <= devices; y *= 2)
      for (int z = 1; x * y * z <= devices; z *= 2)
        grids.push_back({x, y, z, devices / (x * y * z)});
  return grids;
}

std::vector<std::string> names_of(const std::vector<PaperRanked>& ranked, std::size_t count) {
  std::vector<std::string> names;
  for (const PaperRanked& one : ranked)
    if (names.size() < count) names.push_back(to_string(one.grid));
  return names;
}

}  // namespace

TEST(PaperBandwidth, IsTheMachinesRateInsideANodeAndAShareOfTheLinksAcrossNodes) {
  const Machine frontier = read_machine("frontier"), perlmutter = read_machine("perlmutter");
  const GridShape grid = {2, 4, 2, 32};  // groups of (p, g): (1, 2), (2, 4), (8, 2), (16, 32)
  EXPECT_EQ(paper_bandwidth(frontier, grid, Axis::x), 129 * kGiB);
  EXPECT_EQ(paper_bandwidth(frontier, grid, Axis::y), 72 * kGiB);
  EXPECT_EQ(paper_bandwidth(frontier, grid, Axis::z), 40 * kGiB / 8);
  EXPECT_EQ(paper_bandwidth(frontier, grid, Axis::data), 40 * kGiB / 8);
  EXPECT_EQ(paper_bandwidth(perlmutter, grid, Axis::x), 76 * kGiB);
  EXPECT_EQ(paper_bandwidth(perlmutter, grid, Axis::y), 80 * kGiB / 2);
  EXPECT_EQ(paper_bandwidth(perlmutter, grid, Axis::z), 80 * kGiB / 4);
  // 2 · 4 devices fill a node of Frontier and two of Perlmutter. A ring over all ranks shares no
  // links.
  EXPECT_EQ(paper_bandwidth(frontier, {4, 2, 1, 1}, Axis::y), 36 * kGiB);
  EXPECT_EQ(paper_bandwidth(frontier, {1, 1, 16, 1}, Axis::z), 40 * kGiB);
}

TEST(PaperBandwidth, IsDeviceBytesPerSecondForAGroupWithoutARate) {
  EXPECT_EQ(paper_bandwidth(tiny_machine(), {3, 1, 1, 1}, Axis::x), 1);
  Machine one_node = tiny_machine();
  one_node.node_bytes_per_s = 0;
  EXPECT_THAT(
      [&] {
        paper_bandwidth(one_node, {8, 1, 1, 1}, Axis::x);
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("set [links] node_bytes_per_s")));
}

TEST(PaperSeconds, MatchACalculationByHand) {
  // 96 tokens over data: m = 48. Groups: x in pairs, 2 bytes/s; y of 4 with p = 2, 16/2; z with
  // p = 8 and data with p = 16, 16/4. Seconds are elements · 2 bytes / rate.
  const GridShape grid = {2, 4, 2, 2};
  const PaperSeconds s = paper_seconds(kTiny, {.tokens = 96}, tiny_machine(), grid);
  EXPECT_EQ(s.gather_z, 1.0 * 768 / 16 * 2 / 4);             // 24
  EXPECT_EQ(s.scatter_z, 1.0 / 2 * 768 / 8 * 2 / 4);         // 24
  EXPECT_EQ(s.reduce_data, 2 * 1.0 / 2 * 768 / 16 * 2 / 4);  // 24
  // Over y: the outputs of the normal products, 24 and 32 columns cut over x, and the input
  // gradients of the transposed ones, 8 and 32.
  EXPECT_EQ(s.reduce_y, 2 * 3.0 / 4 * 48 * (24 + 32 + 8 + 32) / 4 * 2 / 8);  // 432
  // Over x: the other four, each of 8 columns cut over y.
  EXPECT_EQ(s.reduce_x, 2 * 1.0 / 2 * 48 * (8 + 8 + 8 + 8) / 8 * 2 / 2);  // 192
  EXPECT_EQ(s.total(), 24 + 24 + 24 + 432 + 192);
}

TEST(PaperSeconds, WithRecomputationCountGathersAndForwardSumsTwice) {
  const PaperSeconds s =
      paper_seconds(kTiny, {.tokens = 96, .recompute = true}, tiny_machine(), {2, 4, 2, 2});
  EXPECT_EQ(s.gather_z, 2 * 24);
  EXPECT_EQ(s.scatter_z, 24);
  EXPECT_EQ(s.reduce_data, 24);
  EXPECT_EQ(s.reduce_y, 432 + 2 * 3.0 / 4 * 48 * (24 + 32) / 4 * 2 / 8);  // 432 + 252
  EXPECT_EQ(s.reduce_x, 192 + 2 * 1.0 / 2 * 48 * (8 + 8) / 8 * 2 / 2);    // 192 + 96
}

TEST(PaperSeconds, AreZeroOnOneDeviceAndProportionalToTheLayers) {
  EXPECT_EQ(paper_seconds(kTiny, {.tokens = 96}, tiny_machine(), {1, 1, 1, 1}).total(), 0);
  ModelConfig three = kTiny;
  three.layers = 3;
  EXPECT_EQ(paper_seconds(three, {.tokens = 96}, tiny_machine(), {2, 4, 2, 2}).total(), 3 * 696);
}

TEST(PaperSeconds, CountSharedKeyValueHeadsAndBothProductsOfASwiglu) {
  // (8, 8 + 2 · 4), (8, 8), (8, 2 · 16), (16, 8): 128 + 64 + 256 + 128 = 576 elements over z.
  const ModelConfig llama = {
      .family = ModelFamily::llama, .layers = 1, .hidden = 8, .heads = 2, .kv_heads = 1, .ffn = 16};
  EXPECT_EQ(paper_seconds(llama, {.tokens = 96}, tiny_machine(), {1, 1, 2, 1}).gather_z,
            576.0 / 2 * 2 / 2);
}

TEST(PaperRanking, PutsTheFastestGridFirst) {
  // All W = 32 · 12 · 7168² elements of weights pass a node's links in W · 2 / 80 GiB/s = 0.4594 s.
  // With z alone, 31/32 of them pass three times: 1.335 s. With data = 2, 15/16 of them do, and the
  // sum over data sends 2 · 1/2 · 1/16 of them at a quarter of the rate: 1.292 + 0.115 s. A grid
  // with x or y moves rows of activations, and 2^24 tokens have many: x = 2 costs 35.4 s, at 76
  // GiB/s, and y = 2 more, with n and k swapped.
  const ModelConfig gpt_20b = {
      .layers = 32, .hidden = 7168, .heads = 56, .kv_heads = 56, .ffn = 4 * 7168};
  std::vector<GridShape> fits = powers_of_two(32);
  std::erase_if(fits, [](const GridShape& grid) { return grid.x * grid.y * grid.z < 16; });
  const auto ranked = paper_ranking(fits, gpt_20b, {.tokens = 1 << 24, .recompute = true},
                                    read_machine("perlmutter"));
  EXPECT_THAT(names_of(ranked, 7), ElementsAre("1,1,32,1", "1,1,16,2", "2,1,16,1", "2,1,8,2",
                                               "4,1,4,2", "4,1,8,1", "1,2,16,1"));
  EXPECT_NEAR(ranked[0].seconds.total(), 1.335, 5e-4);
  EXPECT_NEAR(ranked[1].seconds.total(), 1.407, 5e-4);
  EXPECT_NEAR(ranked[2].seconds.reduce_x, 35.368, 5e-4);
}

TEST(PaperRanking, CutsWeightsOverMoreThanANodeIfTheyAreLargerThanTheRows) {
  // Frontier, 320B on 32,768 devices: z moves all weights through a node's links if x · y is at
  // most 8, but only a quarter of them if it is 32, because eight groups share the links in both
  // cases. A ring over x alone has all of a node's links.
  const ModelConfig gpt_320b = {
      .layers = 96, .hidden = 16384, .heads = 128, .kv_heads = 128, .ffn = 4 * 16384};
  std::vector<GridShape> fits = powers_of_two(32768);
  std::erase_if(fits, [](const GridShape& grid) { return grid.x * grid.y * grid.z < 256; });
  const auto ranked = paper_ranking(fits, gpt_320b, {.tokens = 1 << 24, .recompute = true},
                                    read_machine("frontier"));
  EXPECT_THAT(names_of(ranked, 3), ElementsAre("32,1,8,128", "32,1,16,64", "32,1,32,32"));
  // Bytes, with W = 96 · 12 · 16384² elements: over z 3 · 7/8 · W/32 · 2, at 5 GiB/s. Over x six
  // sums in a block (two forward, twice each, and two backward) of 2^24/1024 rows of 16384, which
  // send 2 · 31/32 of their elements, at 40 GiB/s. Over data 2 · 127/128 · W/256 · 2, at 5 GiB/s.
  const PaperSeconds& best = ranked[0].seconds;
  EXPECT_NEAR(best.gather_z + best.scatter_z, 9.450, 5e-4);
  EXPECT_NEAR(best.reduce_x, 13.950, 5e-4);
  EXPECT_NEAR(best.reduce_data, 0.893, 5e-4);
}
