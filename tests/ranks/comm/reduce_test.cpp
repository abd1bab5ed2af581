#include "axonn/ranks/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::ElementsAre;

namespace {

template <typename T>
T reduced(const std::vector<T>& values, ReduceOp op) {
  std::vector<const void*> inps;
  for (const T& value : values) inps.push_back(&value);
  T out{};
  reduce(std::array<void*, 1>{&out}, inps, 1, dtype_of<T>, op);
  return out;
}

bf16 rounded(float x) {
  bf16 y;
  put(y, x);
  return y;
}

/// Values of several ranks whose sum depends on the order, (size, count).
std::vector<std::vector<float>> random_ranks(int size, int count) {
  const Random random(3, "ranks");
  std::vector<std::vector<float>> ranks(size, std::vector<float>(count));
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < count; ++i) {
      const std::uint64_t bits = random.bits(r * count + i)[0];
      ranks[r][i] =
          std::ldexp(static_cast<float>(bits % 2000) - 1000.f, static_cast<int>(bits / 2000 % 12));
    }
  return ranks;
}

std::vector<const void*> pointers(const std::vector<std::vector<float>>& ranks) {
  std::vector<const void*> all;
  for (const auto& values : ranks) all.push_back(values.data());
  return all;
}

/// The definition: splits ranks [first, end) at the largest power of two below their number.
float tree_sum(const std::vector<std::vector<float>>& ranks, int first, int end, int i) {
  if (end - first == 1) return ranks[first][i];
  int split = 1;
  while (2 * split < end - first) split *= 2;
  return tree_sum(ranks, first, first + split, i) + tree_sum(ranks, first + split, end, i);
}

}  // namespace

TEST(Reduce, AddsAlongTheTreeOfRanksForEveryNumberOfRanks) {
  EXPECT_EQ(reduced<float>({1e8f, -1e8f, 1.f}, ReduceOp::sum), 1.f);
  EXPECT_EQ(reduced<float>({1.f, 1e8f, -1e8f}, ReduceOp::sum), 0.f);
  EXPECT_EQ(reduced<float>({1.f, 1e8f, -1e8f, 1.f}, ReduceOp::sum), 0.f);
  EXPECT_EQ(reduced<float>({1.f, 2.f, 1e8f, -1e8f, 4.f}, ReduceOp::sum), 7.f);
  for (int size = 1; size <= 40; ++size) {
    const auto ranks = random_ranks(size, 5000);
    std::vector<float> out(5000);
    reduce(std::array<void*, 1>{out.data()}, pointers(ranks), 5000, DType::f32, ReduceOp::sum);
    for (const int i : {0, 2047, 2048, 4999})
      ASSERT_EQ(out[i], tree_sum(ranks, 0, size, i)) << size << " ranks, element " << i;
  }
}

TEST(Reduce, GivesTheSameBitsFromTheBranchesOfAnyHosts) {
  for (int size = 1; size <= 24; ++size)
    for (const int per_host : {1, 2, 3, 4, 6, 8, 30})
      for (const bool in_turn : {false, true}) {
        const int hosts = (size + per_host - 1) / per_host;
        const auto host_of = [&](int rank) { return in_turn ? rank % hosts : rank / per_host; };
        const auto ranks = random_ranks(size, 300);
        std::vector<bf16> values(300 * size), out(300), want(300);
        std::vector<Summand> of_ranks, of_branches;
        for (int r = 0; r < size; ++r) {
          for (int i = 0; i < 300; ++i) put(values[300 * r + i], ranks[r][i]);
          of_ranks.push_back({&values[300 * r], {r, 1}});
        }
        std::vector<int> host_of_rank;
        for (int r = 0; r < size; ++r) host_of_rank.push_back(host_of(r));
        std::vector<std::vector<float>> sums;
        for (const Branch& branch : branches_of_hosts(host_of_rank)) {
          sums.emplace_back(300);
          reduce_branch(sums.back().data(), std::span(of_ranks).subspan(branch.first, branch.ranks),
                        300, DType::bf16, ReduceOp::sum);
          of_branches.push_back({sums.back().data(), branch, true});
        }
        const std::array<void*, 1> to{out.data()}, to_want{want.data()};
        reduce(to, of_branches, 300, DType::bf16, ReduceOp::sum);
        reduce(to_want, of_ranks, 300, DType::bf16, ReduceOp::sum);
        for (int i = 0; i < 300; ++i)
          ASSERT_EQ(get(out[i]), get(want[i])) << size << " ranks, " << per_host << " a host";
      }
}

TEST(Reduce, CutsTheTreeIntoTheLargestBranchesOfOneHost) {
  const auto branches = [](std::vector<int> host_of) { return branches_of_hosts(host_of); };
  EXPECT_THAT(branches({0, 0, 1, 1, 2, 2, 3, 3}),
              ElementsAre(Branch{0, 2}, Branch{2, 2}, Branch{4, 2}, Branch{6, 2}));
  EXPECT_THAT(branches({0, 1, 1, 1, 1, 1, 1, 0}),
              ElementsAre(Branch{0, 1}, Branch{1, 1}, Branch{2, 2}, Branch{4, 2}, Branch{6, 1},
                          Branch{7, 1}));
  EXPECT_THAT(branches({1, 1, 1, 1, 0, 0, 0}), ElementsAre(Branch{0, 4}, Branch{4, 3}));
  EXPECT_THAT(branches({0, 0, 0, 1, 1, 1}),
              ElementsAre(Branch{0, 2}, Branch{2, 1}, Branch{3, 1}, Branch{4, 2}));
  EXPECT_THAT(branches({5, 5, 5, 5, 5, 5}), ElementsAre(Branch{0, 6}));
  EXPECT_THAT(branches({}), ElementsAre());
}

TEST(Reduce, RefusesBranchesThatLeaveOutARank) {
  float x = 1, y = 2;
  const std::array<Summand, 2> inps{Summand{&x, {0, 2}}, Summand{&y, {3, 1}}};
  EXPECT_THROW(reduce_branch(&x, inps, 1, DType::f32, ReduceOp::sum), Error);
}

TEST(Reduce, RoundsBf16OnceAfterASumInF32) {
  // In bf16, 256 + 1 is a tie and rounds to 256 at each step; the f32 sum reaches 264.
  const std::vector<bf16> values = {rounded(256), rounded(1), rounded(1), rounded(1), rounded(1),
                                    rounded(1),   rounded(1), rounded(1), rounded(1)};
  EXPECT_EQ(get(reduced(values, ReduceOp::sum)), 264.f);
}

TEST(Reduce, RoundsF16OnceAfterASumInF32AndOverflowsOnlyThen) {
  const auto of = [](float x) {
    f16 y;
    put(y, x);
    return y;
  };
  const std::vector<f16> ties(9, of(1)), large{of(65504), of(65504), of(-65504), of(-1024)};
  std::vector<f16> values = ties;
  values[0] = of(2048);  // 2048 + 1 is a tie and rounds to 2048 at each step
  EXPECT_EQ(get(reduced(values, ReduceOp::sum)), 2056.f);
  EXPECT_EQ(get(reduced(large, ReduceOp::sum)), 64480.f);
  EXPECT_EQ(get(reduced<f16>({of(65504), of(1024)}, ReduceOp::sum)),
            std::numeric_limits<float>::infinity());
}

TEST(Reduce, PropagatesANanInAnyInputThroughSumMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    EXPECT_TRUE(std::isnan(reduced<float>({nan, 1, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, nan, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, 2, nan}, op)));
    EXPECT_TRUE(std::isnan(get(reduced<bf16>({rounded(1), rounded(nan), rounded(2)}, op))));
  }
}

TEST(Reduce, WrapsSignedIntegersAroundOnOverflow) {
  const std::int32_t top = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>({top, 1}, ReduceOp::sum),
            std::numeric_limits<std::int32_t>::min());
}

TEST(Reduce, WritesEveryOutAlsoIfItIsAnInput) {
  std::vector<float> a(5000, 1.f), b(5000, 2.f), c(5000);
  reduce(std::array<void*, 3>{c.data(), a.data(), b.data()},
         std::array<const void*, 2>{a.data(), b.data()}, 5000, DType::f32, ReduceOp::sum);
  for (const auto& out : {a, b, c}) EXPECT_THAT(out, testing::Each(3.f));
}
