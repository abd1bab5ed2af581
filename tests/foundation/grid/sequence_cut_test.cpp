#include "axonn/foundation/grid/sequence_cut.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kLength = 16384;

/// Starts of documents whose lengths vary from a few tokens to half of the sequence.
std::vector<std::int32_t> recorded_starts(std::uint64_t sequence) {
  const Random random(3, "documents");
  std::vector<std::int32_t> starts;
  for (std::int64_t i = 0; std::ssize(starts) < kLength; ++i) {
    const std::int64_t most = std::int64_t{1} << random.below(sequence * 1000 + 2 * i, 14);
    const std::int64_t length = 1 + random.below(sequence * 1000 + 2 * i + 1, most);
    starts.insert(starts.end(), std::min(length, kLength - std::ssize(starts)),
                  static_cast<std::int32_t>(starts.size()));
  }
  return starts;
}

/// The work of the busiest rank over the mean.
double imbalance(const std::vector<std::vector<std::int32_t>>& of_rank, std::int64_t window,
                 std::span<const std::int32_t> starts) {
  std::int64_t most = 0, sum = 0;
  for (const auto& blocks : of_rank) {
    std::int64_t work = 0;
    for (const std::int32_t block : blocks) work += pairs_of_block(block, window, starts);
    most = std::max(most, work);
    sum += work;
  }
  return static_cast<double>(most * std::ssize(of_rank)) / static_cast<double>(sum);
}

TEST(SequenceCut, GivesEveryBlockToOneRankAndEachRankAsMany) {
  const std::vector<std::int32_t> starts = recorded_starts(1);
  for (const ContextLayout layout :
       {ContextLayout::automatic, ContextLayout::zigzag, ContextLayout::balanced})
    for (const int ranks : {1, 2, 4, 8, 16}) {
      const auto of_rank = context_blocks(kLength, ranks, {layout, 500}, starts);
      ASSERT_EQ(std::ssize(of_rank), ranks);
      std::set<std::int32_t> all;
      for (const auto& blocks : of_rank) {
        EXPECT_EQ(std::ssize(blocks), kLength / kContextBlock / ranks);
        EXPECT_TRUE(std::ranges::is_sorted(blocks));
        all.insert(blocks.begin(), blocks.end());
      }
      EXPECT_EQ(std::ssize(all), kLength / kContextBlock);
      EXPECT_EQ(*all.begin(), 0);
      EXPECT_EQ(*all.rbegin(), kLength / kContextBlock - 1);
    }
}

TEST(SequenceCut, ZigzagPairsAnEarlyRunWithALateOne) {
  EXPECT_THAT(context_blocks(512, 2, {}),
              ElementsAre(ElementsAre(0, 1, 6, 7), ElementsAre(2, 3, 4, 5)));
  EXPECT_EQ(imbalance(context_blocks(kLength, 8, {}), 0, {}), 1);
}

TEST(SequenceCut, BalancedWorkOfDocumentsDiffersByAtMostFivePercent) {
  double most_zigzag = 1;
  for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
    const std::vector<std::int32_t> starts = recorded_starts(sequence);
    for (const int ranks : {2, 4, 8})
      for (const std::int64_t window : {0, 1000}) {
        const auto balanced =
            context_blocks(kLength, ranks, {ContextLayout::balanced, window}, starts);
        EXPECT_LE(imbalance(balanced, window, starts), 1.05) << sequence << ' ' << ranks;
        most_zigzag = std::max(
            most_zigzag, imbalance(context_blocks(kLength, ranks, {}, starts), window, starts));
      }
  }
  EXPECT_GT(most_zigzag, 1.2);  // these documents need it
}

TEST(SequenceCut, AutomaticBalancesDocumentsOnly) {
  const std::vector<std::int32_t> starts = recorded_starts(2);
  const auto cut = [&](ContextLayout layout, std::span<const std::int32_t> of) {
    return context_blocks(kLength, 4, {layout, 0}, of);
  };
  EXPECT_EQ(cut(ContextLayout::automatic, {}), cut(ContextLayout::zigzag, {}));
  EXPECT_EQ(cut(ContextLayout::automatic, starts), cut(ContextLayout::balanced, starts));
  EXPECT_NE(cut(ContextLayout::automatic, starts), cut(ContextLayout::zigzag, starts));
}

TEST(SequenceCut, AWindowNoLongerThanARunGivesEachRankOneRun) {
  EXPECT_THAT(context_blocks(512, 2, {ContextLayout::automatic, 256}),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_EQ(layout_of({ContextLayout::automatic, 257}, 512, 2, false), ContextLayout::zigzag);
  EXPECT_EQ(layout_of({ContextLayout::automatic, 257}, 512, 2, true), ContextLayout::balanced);
  for (const std::int64_t window : {0, 257})
    EXPECT_THAT(
        [&] {
          layout_of({ContextLayout::window, window}, 512, 2, false);
        },
        testing::ThrowsMessage<UsageError>(HasSubstr("a window of up to 256 positions")));
  EXPECT_EQ(halo_of(1), 64);
  EXPECT_EQ(halo_of(2), 64);
  EXPECT_EQ(halo_of(65), 64);
  EXPECT_EQ(halo_of(66), 128);
}

TEST(SequenceCut, NamesTheNextLengthThatCanBeCut) {
  EXPECT_EQ(trouble_of_cut(512, 4), "");
  EXPECT_THAT(trouble_of_cut(513, 4), HasSubstr("the next length that can is 1024"));
  EXPECT_THAT(trouble_of_cut(256, 4), HasSubstr("512"));
  EXPECT_THROW(context_blocks(256, 4, {}), Error);
}

TEST(SequenceCut, CountsTheKeysThatAreSeen) {
  EXPECT_EQ(pairs_of_block(0, 0), 64 * 65 / 2);
  EXPECT_EQ(pairs_of_block(1, 0), 64 * 64 + 64 * 65 / 2);
  EXPECT_EQ(pairs_of_block(1, 10), 64 * 10);
  std::vector<std::int32_t> starts(128, 0);
  std::fill(starts.begin() + 100, starts.end(), 100);
  EXPECT_EQ(pairs_of_block(1, 0, starts), 36 * 64 + 36 * 37 / 2 + 28 * 29 / 2);
}

}  // namespace
