#include "axonn/data/corpus/packing.h"

#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "axonn/data/corpus/packed_stream.h"
#include "axonn/data/corpus/sampler.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::ElementsAre;

namespace {

DocumentRange documents(const std::vector<std::vector<std::int32_t>>& all) {
  DocumentWriter writer("", "here");
  for (const auto& each : all) writer.append(each);
  return {writer.finish(), 0, std::ssize(all)};
}

/// Documents with these numbers of inputs; the tokens of document d are 100 d, 100 d + 1, ...
DocumentRange of_inputs(const std::vector<int>& inputs) {
  std::vector<std::vector<std::int32_t>> all;
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    all.emplace_back(inputs[d] + 1);
    std::iota(all.back().begin(), all.back().end(), static_cast<std::int32_t>(100 * d));
  }
  return documents(all);
}

/// The targets of all its sequences that are learned.
std::multiset<std::int32_t> learned_from(const PackedDocuments& packed) {
  std::multiset<std::int32_t> targets;
  Sequence s;
  for (std::int64_t n = 0; n < packed.count(); ++n) {
    packed.read(n, s);
    for (std::int32_t target : s.targets)
      if (target >= 0) targets.insert(target);
  }
  return targets;
}

}  // namespace

TEST(PackedDocuments, HaveTheirOwnPositionsAndStartsAndMaskedBordersPromptsAndPadding) {
  const PackedDocuments packed(documents({{~10, 11, 12}, {~20, ~21, ~22, 23}}), 7, 100);
  ASSERT_EQ(packed.count(), 1);
  Sequence s;
  packed.read(0, s);
  EXPECT_THAT(s.ids, ElementsAre(20, 21, 22, 10, 11, 0, 0));
  EXPECT_THAT(s.targets, ElementsAre(-1, -1, 23, 11, 12, kPaddingTarget, kPaddingTarget));
  EXPECT_THAT(s.positions, ElementsAre(0, 1, 2, 0, 1, 0, 0));
  EXPECT_THAT(s.starts, ElementsAre(0, 0, 0, 3, 3, 5, 6));
  EXPECT_EQ(packed.size(0).targets, 3);
  EXPECT_EQ(packed.size(0).inputs, 5);
  EXPECT_EQ(packed.where(0), "documents 2, 1 of here");
}

TEST(PackedDocuments, GoToTheSequenceThatTheyFitBest) {
  // Longest first: 6 | 5 | 4 goes with 6 (room 4, not 5), 3 with 5 (room 5), 2 with 5 and 3
  // (room 2).
  const PackedDocuments packed(of_inputs({3, 6, 2, 5, 4}), 10, 0);
  EXPECT_EQ(packed.count(), 2);
  EXPECT_EQ(packed.where(0), "documents 2, 5 of here");
  EXPECT_EQ(packed.where(1), "documents 4, 1, 3 of here");
}

TEST(PackedDocuments, HaveEveryTargetOnceAndLittlePadding) {
  std::vector<int> inputs;
  const Random random(1, "lengths");
  std::int64_t sum = 0;
  for (int d = 0; d < 5000; ++d) {
    inputs.push_back(1 + static_cast<int>(random.below(d, 90)));
    sum += inputs.back();
  }
  const PackedDocuments packed(of_inputs(inputs), 128, 0);
  std::map<std::int32_t, int> seen;
  Sequence s;
  Sequences::Size total{};
  for (std::int64_t n = 0; n < packed.count(); ++n) {
    packed.read(n, s);
    std::int64_t targets = 0;
    for (std::size_t r = 0; r < s.ids.size(); ++r) {
      if (s.targets[r] < 0) continue;
      ++targets;
      ++seen[s.targets[r]];
      ASSERT_EQ(s.targets[r], s.ids[r] + 1);
      ASSERT_EQ(s.ids[r] % 100, s.positions[r]);
      ASSERT_EQ(s.ids[s.starts[r]] % 100, 0);
    }
    ASSERT_EQ(targets, packed.size(n).targets);
    total.targets += targets;
    total.inputs += packed.size(n).inputs;
  }
  EXPECT_EQ(std::ssize(seen), sum) << "documents have fewer than 100 tokens, so all differ";
  EXPECT_EQ(total.targets, sum);
  EXPECT_EQ(packed.total().targets, sum);
  EXPECT_EQ(packed.total().inputs, total.inputs);
  EXPECT_LE(packed.count(), (sum + 127) / 128 * 102 / 100)
      << "many short documents should fit to 2 %";
}

TEST(PackedDocuments, LongerThanASequenceAreSplitAndPiecesWithoutATargetAreLeftOut) {
  const PackedDocuments packed(
      documents({{1, 2, 3, 4, 5, 6, 7, 8}, {~1, ~2, ~3, ~4, ~5, 6}, {~1, ~2}, {9}, {}}), 3, 0);
  // 3 + 3 + 1 inputs, then 3 without a target, and 2; the others have none at all.
  EXPECT_EQ(packed.pieces(), 4);
  EXPECT_EQ(packed.longer(), 2);
  EXPECT_EQ(packed.left_out(), 3);
  EXPECT_EQ(packed.empty(), 1);
  EXPECT_EQ(packed.total().targets, 8);
  EXPECT_THAT(learned_from(packed), ElementsAre(2, 3, 4, 5, 6, 6, 7, 8));
}

TEST(PackedDocuments, LongerThanASequenceAreLeftOutOrCutOffIfTheUserWants) {
  const auto targets_of = [](ExcessLength excess, const auto&... expected_notes) {
    const PackedDocuments packed(
        documents({{1, 2, 3, 4, 5, 6, 7, 8}, {~1, ~2, ~3, ~4, 5}, {9, 10}}), 3, 0, excess);
    EXPECT_THAT(packed.notes(), ElementsAre(testing::HasSubstr(expected_notes)...));
    return learned_from(packed);
  };
  EXPECT_THAT(targets_of(ExcessLength::drop,
                         "2 of 3 examples are longer than 3 tokens: each is left out "
                         "(data.excess_length_strategy = drop)"),
              ElementsAre(10));
  EXPECT_THAT(targets_of(ExcessLength::truncate, "cut off there", "1 of 3 examples have nothing"),
              ElementsAre(2, 3, 4, 10));
  EXPECT_THAT(
      [] {
        PackedDocuments(of_inputs({7, 8}), 3, 0, ExcessLength::drop);
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("nothing to learn: 2 of 2 examples are longer than 3 tokens")));
}

TEST(PackedDocuments, RefuseNothingToLearnAndTokensOutsideTheVocabulary) {
  EXPECT_THAT(
      [] {
        PackedDocuments(documents({{~1, ~2}}), 4, 0);
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("here: in documents 1 to 1 there is nothing to learn")));
  const PackedDocuments packed(documents({{1, 2}, {~3, 50}}), 4, 50);
  Sequence s;
  EXPECT_THAT([&] { packed.read(0, s); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr(
                  "token 1 of document 2 of here is 50, but model.vocab is 50")));
}

TEST(Sampler, OfDocumentsHasAnotherOrderEachEpochAndTheSameOrderUnshuffled) {
  const auto make = [](bool shuffle) {
    return Sampler(std::make_unique<PackedDocuments>(of_inputs(std::vector<int>(50, 4)), 4, 0),
                   {.seed = 3, .shuffle = shuffle});
  };
  const Sampler order = make(true), again = make(true), plain = make(false);
  std::vector<std::string> first, second;
  for (int n = 0; n < 50; ++n) {
    first.push_back(order.where(n));
    second.push_back(order.where(50 + n));
    EXPECT_EQ(order.where(n), again.where(n));
    EXPECT_EQ(plain.where(n), plain.where(50 + n));
    Sequence s;
    order.read(n, s);
    EXPECT_EQ(order.where(n), "documents " + std::to_string(s.ids[0] / 100 + 1) + " of here");
  }
  EXPECT_NE(first, second);
  EXPECT_THAT(first, testing::UnorderedElementsAreArray(second));
}

TEST(PackedDocuments, AreShownWithLearnedTextMarked) {
  const auto bytes = make_tokenizer("bytes");
  const PackedDocuments packed(documents({{~'a', ~'b', 'c'}, {~'d', 'e', 'f', ~'g', 'h'}}), 8, 0);
  const std::string text = describe(packed, 8, *bytes, 0);
  EXPECT_THAT(text, testing::HasSubstr("  rows 0 to 3: d«ef»g«h»\n  rows 4 to 5: ab«c»\n"
                                       "  rows 6 to 7: padding\n"));
  EXPECT_THAT(text, testing::HasSubstr("learned    4 targets"));
}

TEST(PackedDocuments, AreShownWithCharactersOfSeveralTokensAndBackslashes) {
  const auto bytes = make_tokenizer("bytes");
  std::vector<std::int32_t> coded = bytes->encode("\u5317\n\\n");
  for (std::int32_t& token : coded) token = ~token;
  for (const std::int32_t token : bytes->encode("\u00fc")) coded.push_back(token);
  EXPECT_THAT(describe(PackedDocuments(documents({coded}), 8, 0), 8, *bytes, 0),
              testing::HasSubstr("  rows 0 to 6: \u5317\\n\\\\n«\u00fc»\n"));
}

TEST(PackedStream, HoldsEachDocumentOnceAndWholeUnlessItIsLongerThanASequence) {
  constexpr std::int64_t kLength = 2048, kTokens = 5 * PackedStream::kRun / 2;
  const Random random(1, "packed stream");
  // Token t of document d is 4096 d + t, so that each tells its place.
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> begins;
  std::vector<int> lengths;
  while (std::ssize(tokens) < kTokens) {
    begins.push_back(std::ssize(tokens));
    lengths.push_back(static_cast<int>(1 + random.below(begins.size(), 4000)));
    for (int t = 0; t < lengths.back(); ++t)
      tokens.push_back(static_cast<std::int32_t>(4096 * (begins.size() - 1) + t));
  }
  const auto source = std::make_shared<MemoryTokens>("memory", tokens, begins);
  const PackedStream packed({{source, 0, source->size()}}, kLength, 0);
  const PackedStream again({{source, 0, source->size()}}, kLength, 0);
  std::vector<int> seen(lengths.size());
  std::int64_t inputs = 0;
  for (std::int64_t n = packed.count() - 1; n >= 0; --n) {
    Sequence s;
    packed.read(n, s);
    for (std::int64_t r = 0; r < kLength; ++r) {
      if (s.targets[r] == kPaddingTarget) {
        ASSERT_EQ(s.starts[r], r);
        ASSERT_TRUE(r + 1 == kLength || s.targets[r + 1] == kPaddingTarget);
        continue;
      }
      ++inputs;
      ++seen[s.ids[r] / 4096];
      ASSERT_EQ(s.targets[r], s.ids[r] + 1);
      ASSERT_EQ(s.ids[r] % 4096 % kLength, s.positions[r]) << "only long documents are cut";
      ASSERT_EQ(s.starts[r], r - s.positions[r]);
    }
  }
  for (std::size_t d = 0; d < lengths.size(); ++d) ASSERT_EQ(seen[d], lengths[d] - 1) << d;
  EXPECT_EQ(inputs, packed.inputs());
  // Three runs, of which each ends with a few sequences that are not full.
  EXPECT_LT(static_cast<double>(packed.count() * kLength), 1.05 * static_cast<double>(inputs));
  Sequence first, second;
  packed.read(packed.count() / 2, first);
  again.read(packed.count() / 2, second);
  EXPECT_EQ(first.ids, second.ids);
  EXPECT_THROW(packed.read(packed.count(), first), Error);
}

TEST(PackedStream, StaysInsideItsStreams) {
  std::vector<std::int32_t> tokens(20);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto source =
      std::make_shared<MemoryTokens>("memory", tokens, std::vector<std::int64_t>{0, 6, 7, 12});
  // The stream begins inside the first document and ends inside the last.
  const PackedStream packed({{source, 3, 15}, {source, 7, 12}}, 4, 0);
  EXPECT_EQ(packed.count(), 3);
  Sequence s;
  packed.read(0, s);  // 7 to 11, as the longest
  EXPECT_THAT(s.ids, ElementsAre(7, 8, 9, 10));
  packed.read(1, s);
  EXPECT_THAT(s.ids, ElementsAre(3, 4, 12, 13));
  EXPECT_THAT(s.targets, ElementsAre(4, 5, 13, 14));
  EXPECT_THAT(s.starts, ElementsAre(0, 0, 2, 2));
  packed.read(2, s);
  EXPECT_THAT(s.ids, ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(packed.where(1), "2 documents, first token 3 of memory");
  const auto single = std::make_shared<MemoryTokens>("memory", std::vector<std::int32_t>{1, 2},
                                                     std::vector<std::int64_t>{0, 1});
  EXPECT_THROW(PackedStream({{single, 0, 2}}, 4, 0), UsageError);
}
