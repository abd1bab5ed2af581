#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>

#include "axonn/data/text/bpe/bpe_tokenizer.h"

using namespace axonn;

namespace {

/// The definition: searches all pairs again after every merge.
std::vector<std::int32_t> merged(std::vector<std::int32_t> tokens,
                                 const std::vector<BpeMerge>& merges) {
  while (true) {
    std::size_t best_rank = merges.size(), best_place = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == tokens[i] && merges[rank].right == tokens[i + 1]) {
          best_rank = rank;
          best_place = i;
        }
    if (best_rank == merges.size()) return tokens;
    tokens[best_place] = merges[best_rank].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

/// Random merges over an alphabet of 3, each of two earlier tokens into a new one.
std::vector<BpeMerge> random_merges(std::mt19937& engine, int count) {
  std::vector<BpeMerge> merges;
  std::map<std::pair<int, int>, bool> seen;
  for (int result = 3; result < 3 + count;) {
    const int left = static_cast<int>(engine() % result),
              right = static_cast<int>(engine() % result);
    if (!std::exchange(seen[{left, right}], true)) merges.push_back({left, right, result++});
  }
  return merges;
}

}  // namespace

TEST(BpeMerger, BothAlgorithmsAgreeWithTheDefinition) {
  std::mt19937 engine(1);
  for (int trial = 0; trial < 400; ++trial) {
    auto merges = random_merges(engine, 1 + static_cast<int>(engine() % 12));
    if (trial % 2)
      std::ranges::shuffle(merges, engine);  // ranks out of the order in which tokens are made
    const BpeMerger merger(merges);
    BpeMerger::Scratch scratch;
    std::vector<std::int32_t> word(engine() % 200);
    for (auto& token : word) token = static_cast<std::int32_t>(engine() % 3);
    const auto want = merged(word, merges);
    auto short_way = word, long_way = word, chosen = word;
    short_way.resize(merger.merge_short(short_way, scratch));
    long_way.resize(merger.merge_long(long_way, scratch));
    chosen.resize(merger.merge(chosen, scratch));
    ASSERT_EQ(short_way, want);
    ASSERT_EQ(long_way, want);
    ASSERT_EQ(chosen, want);
  }
}

TEST(BpeMerger, WithoutMergesAWordStaysUnchanged) {
  const BpeMerger merger(std::span<const BpeMerge>{});
  BpeMerger::Scratch scratch;
  std::vector<std::int32_t> word(300, 7);
  EXPECT_EQ(merger.merge(word, scratch), 300u);
  EXPECT_EQ(merger.merge(std::span(word).first(0), scratch), 0u);
  EXPECT_EQ(merger.merge(std::span(word).first(2), scratch), 2u);
}
