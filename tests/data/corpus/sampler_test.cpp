#include "axonn/data/corpus/sampler.h"

#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// A stream of the tokens first, first + 1, ...
TokenStream counting(std::int64_t count, std::int32_t first = 0, double weight = 1) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return {std::make_shared<MemoryTokens>("counting", std::move(tokens)), 0, count, weight};
}

/// The tokens of sequence n: its inputs and the last target.
std::vector<std::int32_t> sample(const Sequences& sequences, std::int64_t n) {
  Sequence sequence;
  sequences.read(n, sequence);
  std::vector<std::int32_t> tokens = sequence.ids;
  tokens.push_back(sequence.targets.back());
  EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), sequence.targets.begin()));
  return tokens;
}

}  // namespace

TEST(Windows, OverlapByOneTokenSoThatEveryTokenIsATargetOnce) {
  const Windows windows({counting(11)}, 3);
  EXPECT_EQ(windows.count(), 3);
  EXPECT_THAT(sample(windows, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sample(windows, 2), ElementsAre(6, 7, 8, 9));
  EXPECT_THROW(sample(windows, 3), Error);
  EXPECT_THROW(sample(windows, -1), Error);
}

TEST(Windows, CoverSeveralStreamsAndStayInsideThem) {
  TokenStream part = counting(20);
  part.begin = 5;
  part.end = 12;  // 7 tokens: 2 windows of 3
  const Windows windows({part, counting(4, 100)}, 3);
  EXPECT_EQ(windows.count(), 3);
  EXPECT_THAT(sample(windows, 1), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(sample(windows, 2), ElementsAre(100, 101, 102, 103));
}

TEST(Windows, AcceptExactlyOneSampleAndRefuseOneTokenLessWithTheNumbers) {
  EXPECT_EQ(Windows({counting(65)}, 64).count(), 1);
  EXPECT_EQ(Windows({counting(128)}, 64).count(), 1);
  EXPECT_THAT([] { Windows({counting(64)}, 64); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("counting has 64 tokens"), HasSubstr("seq_len 64 needs 65"))));
  EXPECT_THROW(Windows({counting(0)}, 1), UsageError);
  EXPECT_THROW(Windows({counting(10)}, 0), Error);
}

TEST(Sampler, WithoutShuffleFollowsTheFileAndRepeats) {
  const Sampler sampler({counting(10)}, {.seq_len = 3, .seed = 1, .shuffle = false});
  EXPECT_THAT(sample(sampler, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sample(sampler, 1), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(sample(sampler, 2), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(sample(sampler, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(sampler.count(), 3);
}

TEST(Sampler, ShuffledHasEveryTargetOncePerEpochAndAnotherOrderPerEpochAndSeed) {
  const std::int64_t seq_len = 7, windows = 200;
  const Sampler a({counting(seq_len * windows + 1)}, {.seq_len = seq_len, .seed = 1}),
      b({counting(seq_len * windows + 1)}, {.seq_len = seq_len, .seed = 2});
  std::map<std::int32_t, int> targets;
  int as_in_next_epoch = 0, as_in_other_seed = 0, in_file_order = 0;
  for (std::int64_t n = 0; n < windows; ++n) {
    const auto tokens = sample(a, n);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      ++targets[tokens[i]];
      ASSERT_EQ(tokens[i], tokens[i - 1] + 1);
    }
    as_in_next_epoch += tokens == sample(a, n + windows);
    as_in_other_seed += tokens == sample(b, n);
    in_file_order += tokens[0] == n * seq_len;
  }
  EXPECT_EQ(std::ssize(targets), seq_len * windows);
  for (const auto& [token, times] : targets) ASSERT_EQ(times, 1) << token;
  // Two random orders of any length agree in one place on average; in 8 with chance 1e-5.
  EXPECT_LT(as_in_next_epoch, 8);
  EXPECT_LT(as_in_other_seed, 8);
  EXPECT_LT(in_file_order, 8);
}

TEST(Sampler, IsAFunctionOfSeedAndNumberAlone) {
  const auto make = [] {
    return Sampler({counting(1000, 0, 2), counting(500, 5000, 1)}, {.seq_len = 9, .seed = 3});
  };
  const Sampler one = make(), other = make();
  for (std::int64_t n : {900'000'000'000L, 5L, 70'000L, 5L, 0L})
    EXPECT_EQ(sample(one, n), sample(other, n)) << n;
}

TEST(Sampler, OfABlendRepeatsEachSourceInItsOwnEpochs) {
  const Sampler sampler({counting(31, 0, 3), counting(61, 1000, 1)},
                        {.seq_len = 3, .seed = 4, .shuffle = true});
  std::map<int, std::vector<std::int64_t>> order;
  for (std::int64_t n = 0; n < 4000; ++n) {
    const std::int32_t first = sample(sampler, n)[0];
    order[first >= 1000].push_back(first);
  }
  EXPECT_NEAR(static_cast<double>(order[0].size()), 3000, 2);
  for (auto& [stream, windows] : order) {
    const std::int64_t count = stream == 0 ? 10 : 20;
    for (std::int64_t begin = 0; begin + count <= std::ssize(windows); begin += count) {
      const std::set<std::int64_t> epoch(windows.begin() + begin, windows.begin() + begin + count);
      ASSERT_EQ(std::ssize(epoch), count) << "a window twice in an epoch of stream " << stream;
    }
  }
}

TEST(Sampler, RefusesATokenThatTheModelDoesNotHave) {
  const Sampler sampler({counting(10)}, {.seq_len = 3, .shuffle = false, .vocab = 8});
  EXPECT_NO_THROW(sample(sampler, 0));
  EXPECT_THAT([&] { sample(sampler, 2); },
              testing::ThrowsMessage<UsageError>(HasSubstr("token 8 of counting is 8")));
}

TEST(Sampler, ATooShortSourceOfABlendIsRefused) {
  EXPECT_THROW(Sampler({counting(100), counting(3)}, {.seq_len = 3}), UsageError);
  EXPECT_THROW(Sampler(std::vector<TokenStream>{}, {.seq_len = 3}), Error);
  const Sampler sampler({counting(10)}, {.seq_len = 3});
  EXPECT_THROW(sample(sampler, -1), Error);
}

namespace {

constexpr std::int32_t kEnd = 99;

/// A stream of documents that the source knows, at 0, 3 and 8; kEnd is token 5.
TokenStream with_documents() {
  std::vector<std::int32_t> tokens{1, 2, 3, 11, 12, kEnd, 13, 14, 21, 22, 23, 24, 25};
  return {std::make_shared<MemoryTokens>("documents", tokens, std::vector<std::int64_t>{0, 3, 8}),
          0, std::ssize(tokens)};
}

Sequence window_of(DocumentMode mode, std::int64_t n, std::int64_t seq_len = 6,
                   std::int32_t end = kEnd) {
  Sequence sequence;
  Windows({with_documents()}, seq_len, 0, {mode, end}).read(n, sequence);
  return sequence;
}

}  // namespace

TEST(Windows, SeparateDocumentsWhereTheSourceAndTheEndOfTextSay) {
  const Sequence first = window_of(DocumentMode::separate, 0),
                 second = window_of(DocumentMode::separate, 1);
  EXPECT_THAT(first.ids, ElementsAre(1, 2, 3, 11, 12, kEnd));
  EXPECT_THAT(first.targets, ElementsAre(2, 3, -1, 12, kEnd, -1));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(first.starts, ElementsAre(0, 0, 0, 3, 3, 3));
  EXPECT_THAT(second.ids, ElementsAre(13, 14, 21, 22, 23, 24));
  EXPECT_THAT(second.targets, ElementsAre(14, -1, 22, 23, 24, 25));
  EXPECT_THAT(second.positions, ElementsAre(0, 1, 0, 1, 2, 3));
  EXPECT_THAT(second.starts, ElementsAre(0, 0, 2, 2, 2, 2));
  // A document that begins right after the window still has no loss on its first token.
  EXPECT_THAT(window_of(DocumentMode::separate, 0, 8, -1).targets,
              ElementsAre(2, 3, -1, 12, kEnd, 13, 14, -1));
  // Without the token, documents end only where the source says.
  EXPECT_THAT(window_of(DocumentMode::separate, 0, 6, -1).targets,
              ElementsAre(2, 3, -1, 12, kEnd, 13));
}

TEST(Windows, JoinedAndApertusDocumentsAreOneTextAndApertusHasNoLossOnFirstTokens) {
  const Sequence joined = window_of(DocumentMode::joined, 0),
                 apertus = window_of(DocumentMode::apertus, 0);
  EXPECT_THAT(joined.targets, ElementsAre(2, 3, 11, 12, kEnd, 13));
  EXPECT_THAT(apertus.targets, ElementsAre(2, 3, -1, 12, kEnd, -1));
  for (const Sequence& sequence : {joined, apertus}) {
    EXPECT_TRUE(sequence.positions.empty());
    EXPECT_TRUE(sequence.starts.empty());
  }
  EXPECT_FALSE(Windows({with_documents()}, 6).counts_by_reading());
  for (const auto mode : {DocumentMode::separate, DocumentMode::apertus}) {
    EXPECT_TRUE(Windows({with_documents()}, 6, 0, {mode, kEnd}).counts_by_reading());
    EXPECT_TRUE(
        Sampler({with_documents()}, {.seq_len = 6, .documents = {mode, kEnd}}).counts_by_reading());
  }
}
