#include "axonn/data/corpus/goldfish.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

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

/// Whether the mask `apertus` hides the last of these tokens, by its definition.
bool plainly_hidden_by_apertus(std::span<const std::int32_t> tokens, std::int64_t k) {
  static const std::vector<double> kTable = [] {
    std::mt19937 engine(2971215073u);
    std::vector<double> table;
    for (int i = 0; i < 1000003; ++i) table.push_back((engine() % (1 << 24)) / std::pow(2.0, 24));
    return table;
  }();
  __extension__ using Wide = __int128;
  constexpr Wide kWrap = Wide{1} << 64;
  Wide product = 1;
  for (const std::int32_t token : tokens) product = product * token % kWrap;
  if (product >= kWrap / 2) product -= kWrap;
  return kTable[static_cast<std::size_t>((product % 1000003 + 1000003) % 1000003)] <
         1 / static_cast<double>(k);
}

}  // namespace

TEST(Goldfish, ApertusHidesTheTargetsThatItsDefinitionHides) {
  for (const std::int64_t h : {1, 3, 50})
    for (const std::int64_t k : {2, 5, 50}) {
      const Sequence before = random_sequence(3000, 7, 131072),
                     after = masked({.k = k, .h = h, .mask = GoldfishMask::apertus}, before);
      for (std::int64_t i = 0; i < 3000; ++i) {
        const bool hidden = i >= h - 1 && plainly_hidden_by_apertus(
                                              std::span(before.targets).subspan(i + 1 - h, h), k);
        ASSERT_EQ(after.targets[i], hidden ? -1 : before.targets[i])
            << "target " << i << ", h " << h << ", k " << k;
      }
    }
}

TEST(Goldfish, ApertusKeysAreProductsModulo2To64AsSignedNumbers) {
  EXPECT_EQ(apertus_key(Tokens{7, 11, 13}), 1001);
  EXPECT_EQ(apertus_key(Tokens{131071, 0, 5}), 0);
  EXPECT_EQ(apertus_key(Tokens{1 << 21, 1 << 21, 1 << 21}), 324658) << "-2^63";
  EXPECT_EQ(apertus_key(Tokens{1 << 22, 1 << 21, 1 << 21}), 0) << "2^64";
}

TEST(Goldfish, ApertusNumbersBeginAsInItsTrainer) {
  // The targets (key) have the keys 0, 1 and 2, whose numbers are 0.233684, 0.441264, 0.741148.
  const auto hides = [](std::int32_t key, std::int64_t k) {
    const Sequence one{{9}, {key}, {}, {}};
    return masked({.k = k, .h = 1, .mask = GoldfishMask::apertus}, one).targets[0] < 0;
  };
  EXPECT_TRUE(hides(0, 4) && !hides(0, 5));
  EXPECT_TRUE(hides(1, 2) && !hides(1, 3));
  EXPECT_TRUE(!hides(2, 2));
}

TEST(Goldfish, ApertusHidesFewerThanOneInKBecauseProductsVanish) {
  // A product of 50 random numbers has on average 50 factors of two; it is 0 modulo 2^64 if there
  // are 64 or more, which has the probability below. Their number, 0.23, is not hidden.
  constexpr std::int64_t kRows = 100000, kH = 50;
  constexpr double kVanish = 0.094, kShare = 0.02 * (1 - kVanish);
  const Sequence s =
      masked({.k = 50, .h = kH, .mask = GoldfishMask::apertus}, random_sequence(kRows, 3, 131072));
  const auto hidden = static_cast<double>(std::ranges::count(s.targets, -1));
  // Six standard deviations of independent draws, plus the spread of the vanishing runs.
  EXPECT_NEAR(hidden / kRows, kShare, 6 * std::sqrt(kShare / kRows) + 0.001);
}

TEST(Goldfish, ApertusIgnoresDocumentsAndTargetsThatDoNotCount) {
  const GoldfishConfig config{.k = 2, .h = 4, .mask = GoldfishMask::apertus};
  Sequence text = random_sequence(200, 21);
  const Sequence whole = masked(config, text);
  text.starts.assign(200, 0);
  for (std::int64_t row = 90; row < 200; ++row) text.starts[row] = 90;
  for (std::int64_t row = 50; row < 60; ++row) text.targets[row] = -1;
  const Sequence packed = masked(config, text, 0, text.ids[30]);
  for (std::int64_t row = 0; row < 200; ++row)
    ASSERT_EQ(packed.targets[row], row >= 50 && row < 60 ? -1 : whole.targets[row]) << row;
}

TEST(Goldfish, ApertusTakesTheTargetsOfPackedDocumentsAlsoWhereAnotherDocumentFollows) {
  // Three documents of 40, 1 and 60 inputs: the last target of each is no input of the sequence.
  const GoldfishConfig config{.k = 2, .h = 5, .mask = GoldfishMask::apertus};
  Sequence before{{}, {}, {}, {}};
  for (const std::int64_t inputs : {40, 1, 60}) {
    const Sequence document = random_sequence(inputs, static_cast<std::uint64_t>(inputs), 131072);
    const auto start = static_cast<std::int32_t>(before.ids.size());
    before.ids.insert(before.ids.end(), document.ids.begin(), document.ids.end());
    before.targets.insert(before.targets.end(), document.targets.begin(), document.targets.end());
    before.starts.insert(before.starts.end(), static_cast<std::size_t>(inputs), start);
  }
  const Sequence after = masked(config, before);
  for (std::int64_t i = 0; i < 101; ++i) {
    const bool hidden =
        i >= config.h - 1 &&
        plainly_hidden_by_apertus(std::span(before.targets).subspan(i + 1 - config.h, config.h),
                                  config.k);
    ASSERT_EQ(after.targets[i], hidden ? -1 : before.targets[i]) << i;
  }
}

TEST(Goldfish, KeepsOneTargetLessThanHAtTheBeginningOfASequence) {
  // The first of the h tokens is no target; the paper's program likewise keeps targets 0 to h - 2.
  constexpr std::int64_t kH = 7;
  for (const auto mask : {GoldfishMask::hash, GoldfishMask::apertus}) {
    std::int64_t first_hidden = kH;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Sequence s = masked({.k = 2, .h = kH, .mask = mask}, random_sequence(kH, seed, 131072));
      EXPECT_THAT(std::span(s.targets).first(kH - 1), Each(Ge(0)));
      if (s.targets[kH - 1] < 0) first_hidden = kH - 1;
    }
    EXPECT_EQ(first_hidden, kH - 1);
  }
}

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

TEST(Goldfish, LeavesPaddingPadding) {
  Sequence padding = random_sequence(500, 1);
  std::ranges::fill(padding.targets, kPaddingTarget);
  for (const auto mask :
       {GoldfishMask::hash, GoldfishMask::position, GoldfishMask::seeded, GoldfishMask::apertus})
    EXPECT_THAT(masked({.k = 2, .h = 1, .mask = mask}, padding).targets, Each(kPaddingTarget));
}

TEST(Goldfish, RefusesToHideEverything) {
  EXPECT_THROW(goldfish_mask({.k = 1, .h = 13}, 1, kNoEnd), Error);
  EXPECT_THROW(goldfish_mask({.k = 2, .h = 0}, 1, kNoEnd), Error);
}
