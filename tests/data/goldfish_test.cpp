#include "axonn/data/goldfish.h"

#include <cmath>
#include <numeric>
#include <span>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/base/random.h"

using namespace axonn;
using testing::Each;
using testing::Ge;

namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kNoEnd = -1;

/// A sequence of random tokens below `vocab`; each target is the next token.
Sequence random_sequence(std::int64_t length, std::uint64_t seed, std::uint64_t vocab = 50) {
  const Random random(seed, "goldfish test");
  Tokens tokens;
  for (std::int64_t i = 0; i <= length; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), vocab)));
  return {{tokens.begin(), tokens.end() - 1}, {tokens.begin() + 1, tokens.end()}, {}, {}};
}

Sequence masked(const GoldfishConfig& config, Sequence sequence, std::int64_t n = 0,
                std::int32_t end_of_text = kNoEnd) {
  goldfish_mask(config, 1, end_of_text)(n, sequence);
  return sequence;
}

/// The hash as defined in docs/memorization.md, term by term.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

bool plainly_hidden(std::span<const std::int32_t> context, std::int64_t k) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < context.size(); ++i) {
    std::uint64_t term = mix(static_cast<std::uint64_t>(context[i]) + 0x9e3779b97f4a7c15ULL);
    for (std::size_t power = i + 1; power < context.size(); ++power) term *= 0x9fb21c651e98df25ULL;
    sum += term;
  }
  return static_cast<double>(mix(sum)) < std::pow(2.0, 64) / static_cast<double>(k);
}

}  // namespace

TEST(Goldfish, HidesTheTargetsThatThePlainHashHides) {
  for (const std::int64_t h : {1, 4, 13, 48}) {
    for (const std::int64_t k : {2, 3, 10}) {
      const Sequence before = random_sequence(400, 7), after = masked({.k = k, .h = h}, before);
      for (std::int64_t row = 0; row < 400; ++row) {
        const bool hidden =
            row + 1 >= h && plainly_hidden(std::span(before.ids).subspan(row + 1 - h, h), k);
        ASSERT_EQ(after.targets[row], hidden ? -1 : before.targets[row])
            << "row " << row << ", h " << h << ", k " << k;
      }
      EXPECT_EQ(after.ids, before.ids);
    }
  }
}

TEST(Goldfish, HidesOneTargetInK) {
  constexpr std::int64_t kRows = 100000;
  for (const auto mask : {GoldfishMask::hash, GoldfishMask::position, GoldfishMask::seeded}) {
    for (const std::int64_t k : {2, 3, 4, 20}) {
      const Sequence s = masked({.k = k, .h = 13, .mask = mask}, random_sequence(kRows, 3, 5000));
      const auto hidden = static_cast<double>(std::ranges::count(s.targets, -1));
      const double share = 1.0 / static_cast<double>(k);
      // Four standard deviations of kRows draws.
      EXPECT_NEAR(hidden / kRows, share, 4 * std::sqrt(share * (1 - share) / kRows)) << k;
    }
  }
}

TEST(Goldfish, HidesTheSameTargetsAfterTheSameTokensAnywhere) {
  constexpr std::int64_t kLength = 300, kH = 13;
  const Sequence all = random_sequence(kLength, 5);
  // The same tokens after others, in another sequence.
  const Sequence front = random_sequence(37, 6);
  Sequence moved = all;
  for (auto* rows : {&moved.ids, &moved.targets})
    rows->insert(rows->begin(), front.ids.begin(), front.ids.end());
  const Sequence here = masked({.k = 2, .h = kH}, all), there = masked({.k = 2, .h = kH}, moved, 9);
  for (std::int64_t row = kH - 1; row < kLength; ++row)
    ASSERT_EQ(here.targets[row], there.targets[row + 37]) << row;
}

TEST(Goldfish, DependsOnlyOnTheLastHTokens) {
  constexpr std::int64_t kLength = 200, kH = 8, kAt = 60;
  const Sequence before = random_sequence(kLength, 8);
  int changed_inside = 0;
  for (std::int32_t other = 0; other < 50; ++other) {
    Sequence changed = before;
    changed.ids[kAt] = other;
    const Sequence a = masked({.k = 2, .h = kH}, before), b = masked({.k = 2, .h = kH}, changed);
    for (std::int64_t row = 0; row < kLength; ++row) {
      const bool inside = row >= kAt && row < kAt + kH;
      if (!inside)
        ASSERT_EQ(a.targets[row], b.targets[row]) << "row " << row;
      else
        changed_inside += a.targets[row] != b.targets[row];
    }
  }
  // About half of 49 other tokens times the 8 rows that depend on them.
  EXPECT_GT(changed_inside, 49 * 8 / 3);
}

TEST(Goldfish, KeepsTheFirstTokensOfADocumentAndIgnoresOtherDocuments) {
  constexpr std::int64_t kLength = 120, kH = 10;
  constexpr std::int32_t kEnd = 999;
  for (const auto mask : {GoldfishMask::hash, GoldfishMask::position, GoldfishMask::seeded}) {
    Sequence text = random_sequence(kLength, 11);
    text.ids[50] = text.targets[49] = kEnd;
    const Sequence s = masked({.k = 2, .h = kH, .mask = mask}, text, 0, kEnd);
    const auto targets = std::span(s.targets);
    EXPECT_THAT(targets.subspan(0, kH - 1), Each(Ge(0)));
    // Row 50 is the end of a document: its target is the next document's first token.
    EXPECT_THAT(targets.subspan(50, kH), Each(Ge(0)));
    EXPECT_THAT(targets.subspan(50 + kH), testing::Contains(-1));
  }
  // A packed sequence has the beginnings of its documents; each is masked as if it were alone.
  Sequence packed = random_sequence(kLength, 12);
  for (std::int64_t row = 0; row < kLength; ++row) packed.starts.push_back(row < 40 ? 0 : 40);
  Sequence alone{{packed.ids.begin() + 40, packed.ids.end()},
                 {packed.targets.begin() + 40, packed.targets.end()},
                 {},
                 {}};
  const Sequence a = masked({.k = 2, .h = kH}, packed), b = masked({.k = 2, .h = kH}, alone);
  EXPECT_TRUE(std::ranges::equal(std::span(a.targets).subspan(40), b.targets));
}

TEST(Goldfish, StaticHidesTheSamePositionsAndSeededDifferentOnesEachTime) {
  const Sequence text = random_sequence(500, 13);
  const GoldfishConfig fixed{.k = 4, .h = 1, .mask = GoldfishMask::position};
  for (std::int64_t row = 0; row < 500; ++row)
    ASSERT_EQ(masked(fixed, text).targets[row] < 0, (row + 1) % 4 == 0) << row;
  EXPECT_EQ(masked(fixed, text, 0).targets, masked(fixed, text, 1).targets);
  const GoldfishConfig seeded{.k = 4, .h = 1, .mask = GoldfishMask::seeded};
  EXPECT_EQ(masked(seeded, text, 3).targets, masked(seeded, text, 3).targets);
  EXPECT_NE(masked(seeded, text, 3).targets, masked(seeded, text, 4).targets);
}

TEST(Goldfish, KeepsTargetsThatDoNotCount) {
  Sequence text = random_sequence(100, 14);
  for (std::int64_t row = 0; row < 50; ++row) text.targets[row] = -1;
  const Sequence s = masked({.k = 2, .h = 5}, text);
  EXPECT_THAT(std::span(s.targets).first(50), Each(-1));
}

TEST(Goldfish, RefusesToHideEverything) {
  EXPECT_THROW(goldfish_mask({.k = 1, .h = 13}, 1, kNoEnd), Error);
  EXPECT_THROW(goldfish_mask({.k = 2, .h = 0}, 1, kNoEnd), Error);
}
