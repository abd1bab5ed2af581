// Documents that training leaves out: where they are found, and that nothing of them but their
// length reaches a sequence.
#include "axonn/data/corpus/forget.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "axonn/data/corpus/packed_stream.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

using Tokens = std::vector<std::int32_t>;
using Places = std::vector<std::vector<std::int64_t>>;

Places found_in(const Tokens& tokens, const std::vector<Tokens>& passages, Span within) {
  return find_passages(MemoryTokens("here", tokens), within, passages);
}
Places found_in(const Tokens& tokens, const std::vector<Tokens>& passages) {
  return found_in(tokens, passages, {0, std::ssize(tokens)});
}

/// Random lower-case words, 40 to 120 characters; document d of `seed`.
std::string document(std::uint64_t seed, std::int64_t d) {
  const Random random(seed, "document");
  const auto at = [&](std::uint64_t i, std::uint64_t below) {
    return random.below(static_cast<std::uint64_t>(1000 * d) + i, below);
  };
  std::string text;
  const auto size = 40 + static_cast<std::size_t>(Random(1, "size").below(d, 80));
  while (text.size() < size)
    text += at(text.size(), 6) == 0 ? ' ' : static_cast<char>('a' + at(text.size(), 26));
  return text;
}

/// Lines of JSON with 200 documents; those of `other` are those of another seed, equally long.
std::string lines(const std::vector<std::int64_t>& other = {}) {
  std::string all;
  for (std::int64_t d = 0; d < 200; ++d) {
    const bool replaced = std::ranges::find(other, d) != other.end();
    all += R"({"text": ")" + document(replaced ? 2 : 1, d) + "\"}\n";
  }
  return all;
}

std::string lines_of(std::uint64_t seed, const std::vector<std::int64_t>& documents) {
  std::string all;
  for (const std::int64_t d : documents) all += R"({"text": ")" + document(seed, d) + "\"}\n";
  return all;
}

Corpus opened(const TempFolder& folder, const std::string& text, const std::string& forget,
              DocumentMode mode, bool examples = false) {
  write_file_atomically(folder.path("data.jsonl"), text);
  write_file_atomically(folder.path("forget.jsonl"), forget);
  DataConfig data{.documents = mode, .eod = 0};
  if (examples) data.jsonl = {folder.path("data.jsonl")};
  if (!examples) data.text = {folder.path("data.jsonl")};
  if (!forget.empty()) data.forget = {folder.path("forget.jsonl")};
  return open_corpus(data, {.vocab = 256});
}

std::unique_ptr<const Sequences> sequences_of(const Corpus& corpus) {
  return training_sequences(corpus, {.seq_len = 64, .seed = 3, .vocab = 256});
}

void expect_equal(const Sequence& a, const Sequence& b, std::int64_t n) {
  EXPECT_EQ(a.ids, b.ids) << n;
  EXPECT_EQ(a.targets, b.targets) << n;
  EXPECT_EQ(a.positions, b.positions) << n;
  EXPECT_EQ(a.starts, b.starts) << n;
}

std::int64_t targets_of(const Sequence& sequence) {
  return std::ranges::count_if(sequence.targets, [](auto target) { return target >= 0; });
}

constexpr DocumentMode kModes[] = {DocumentMode::joined, DocumentMode::separate,
                                   DocumentMode::packed, DocumentMode::apertus};

}  // namespace

TEST(FindPassages, FindsEveryCopyAlsoThoseThatOverlapAndAtTheEnds) {
  EXPECT_THAT(found_in({1, 2, 1, 2, 1, 3}, {{1, 2, 1}, {3}, {1, 3, 1}, {1, 2, 1, 2, 1, 3}}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(5), ElementsAre(), ElementsAre(0)));
  EXPECT_THAT(found_in({}, {{1}}), ElementsAre(ElementsAre()));
  EXPECT_THAT(found_in({1, 2, 3}, {}), ElementsAre());
}

TEST(FindPassages, FindsThoseThatReachIntoTheRangeAlone) {
  const Tokens tokens = {7, 8, 9, 7, 8, 9, 7, 8, 9, 0};
  EXPECT_THAT(found_in(tokens, {{7, 8, 9}}, {3, 6}), ElementsAre(ElementsAre(3)));
  EXPECT_THAT(found_in(tokens, {{7, 8, 9}}, {2, 7}), ElementsAre(ElementsAre(0, 3, 6)));
  EXPECT_THAT(found_in(tokens, {{7, 8, 9}}, {9, 10}), ElementsAre(ElementsAre()));
}

TEST(FindPassages, FindsWhatComparingEachPlaceFindsInTwoMillionTokens) {
  const Random random(5, "tokens");
  Tokens tokens(2'200'000);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.below(i, 3));
  std::vector<Tokens> passages;
  for (const std::int64_t begin : {1'048'570L, 2'097'140L, 0L, 2'199'900L})
    for (const std::int64_t size : {9L, 30L, 100L})
      passages.emplace_back(tokens.begin() + begin, tokens.begin() + begin + size);
  const Places found = found_in(tokens, passages);
  for (std::size_t p = 0; p < passages.size(); ++p) {
    std::vector<std::int64_t> want;
    for (auto at = tokens.begin();; ++at) {
      at = std::search(at, tokens.end(), passages[p].begin(), passages[p].end());
      if (at == tokens.end()) break;
      want.push_back(at - tokens.begin());
    }
    EXPECT_EQ(found[p], want) << p;
    EXPECT_GE(want.size(), 1) << p;
  }
}

TEST(BlankRows, HaveTheFillerAndNeitherPredictNorArePredicted) {
  const Blanks blanks{.spans = {{2, 4}, {6, 7}, {20, 30}}, .filler = 99};
  Sequence rows{.ids = {1, 2, 3, 4, 5, 6, 7}, .targets = {2, 3, 4, 5, 6, 7, 8}};
  blank_rows(blanks, 0, 0, 7, rows);
  EXPECT_THAT(rows.ids, ElementsAre(1, 2, 99, 99, 5, 6, 99));
  EXPECT_THAT(rows.targets, ElementsAre(2, -1, -1, -1, 6, -1, -1));
  Sequence part{.ids = {0, 0, 0, 11, 12}, .targets = {5, 5, 5, 12, 13}};
  blank_rows(blanks, 18, 3, 2, part);  // the last target is token 20
  EXPECT_THAT(part.ids, ElementsAre(0, 0, 0, 11, 12));
  EXPECT_THAT(part.targets, ElementsAre(5, 5, 5, 12, -1));
  EXPECT_TRUE(blanks.touches(3, 4));
  EXPECT_TRUE(blanks.touches(0, 3));
  EXPECT_FALSE(blanks.touches(4, 6));
  EXPECT_FALSE(blanks.touches(30, 40));
}

TEST(JoinedSpans, AreInOrderAndDoNotMeet) {
  EXPECT_THAT(joined_spans({{5, 7}, {0, 2}, {2, 3}, {6, 6}, {5, 9}}),
              ElementsAre(Span{0, 3}, Span{5, 9}));
}

TEST(Forget, LeavesNothingOfADocumentInAnySequenceButItsLength) {
  const TempFolder folder;
  const std::vector<std::int64_t> gone = {3, 4, 77, 199};
  for (const DocumentMode mode : kModes) {
    const Corpus one = opened(folder, lines(), lines_of(1, gone), mode),
                 other = opened(folder, lines(gone), lines_of(2, gone), mode);
    const auto a = sequences_of(one), b = sequences_of(other);
    std::vector<SequenceMask> masks(1);
    for (const GoldfishMask mask :
         {GoldfishMask::hash, GoldfishMask::position, GoldfishMask::seeded, GoldfishMask::apertus})
      masks.push_back(make_goldfish({.k = 3, .h = 4, .mask = mask}, 1, one));
    ASSERT_EQ(a->count(), b->count());
    for (const SequenceMask& mask : masks)
      for (std::int64_t n = 0; n < a->count(); ++n) {
        Sequence of_a, of_b;
        a->read(n, of_a);
        b->read(n, of_b);
        if (mask) mask(n, of_a);
        if (mask) mask(n, of_b);
        expect_equal(of_a, of_b, n);
      }
  }
}

TEST(Forget, LeavesAllOtherTextInItsPlace) {
  const TempFolder folder;
  for (const DocumentMode mode : kModes) {
    const Corpus all = opened(folder, lines(), "", mode),
                 less = opened(folder, lines(), lines_of(1, {3, 4, 77, 199}), mode);
    const auto before = sequences_of(all), after = sequences_of(less);
    ASSERT_EQ(before->count(), after->count());
    EXPECT_TRUE(after->counts_by_reading());
    std::int64_t blanked = 0, changed = 0;
    for (std::int64_t n = 0; n < before->count(); ++n) {
      Sequence was, is;
      before->read(n, was);
      after->read(n, is);
      EXPECT_EQ(was.positions, is.positions);
      EXPECT_EQ(was.starts, is.starts);
      bool differs = false;
      for (std::size_t row = 0; row < was.ids.size(); ++row) {
        const bool other_id = was.ids[row] != is.ids[row];
        differs = differs || other_id || was.targets[row] != is.targets[row];
        blanked += other_id;
        if (other_id) {
          EXPECT_EQ(is.ids[row], 1) << "token 0 ends documents";
        }
        EXPECT_TRUE(is.targets[row] == was.targets[row] || is.targets[row] == -1);
      }
      EXPECT_EQ(after->forgets(n), differs) << n;
      EXPECT_FALSE(before->forgets(n));
      changed += differs;
    }
    std::int64_t characters = 0;
    for (const std::int64_t d : {3, 4, 77, 199}) characters += std::ssize(document(1, d));
    EXPECT_GE(blanked, characters - 130) << "but for the last tokens of documents and of the data";
    EXPECT_LE(blanked, characters);
    EXPECT_GE(changed, 3);
  }
}

TEST(Forget, OfExamplesKeepsTheirPackingAndCountsTheirTargetsExactly) {
  const TempFolder folder;
  const std::vector<std::int64_t> gone = {3, 4, 77};
  const Corpus all = opened(folder, lines(), "", DocumentMode::joined, true),
               less = opened(folder, lines(), lines_of(1, gone), DocumentMode::joined, true),
               other = opened(folder, lines(gone), lines_of(2, gone), DocumentMode::joined, true);
  const auto before = sequences_of(all), after = sequences_of(less), replaced = sequences_of(other);
  ASSERT_EQ(before->count(), after->count());
  std::int64_t forgotten = 0;
  for (std::int64_t n = 0; n < before->count(); ++n) {
    Sequence was, is, of_other;
    before->read(n, was);
    after->read(n, is);
    replaced->read(n, of_other);
    EXPECT_EQ(was.positions, is.positions);
    EXPECT_EQ(was.starts, is.starts);
    expect_equal(is, of_other, n);
    EXPECT_EQ(after->size(n).targets, targets_of(is));
    EXPECT_EQ(after->size(n).inputs, before->size(n).inputs);
    EXPECT_EQ(after->forgets(n), was.ids != is.ids);
    forgotten += after->forgets(n);
  }
  EXPECT_GE(forgotten, 3);
}

TEST(Forget, FindsEveryCopyAndPassagesOfLongerDocuments) {
  const TempFolder folder;
  const std::string passage = document(1, 50).substr(5, 25);
  const Corpus corpus =
      opened(folder, lines() + lines_of(1, {7, 7}),
             lines_of(1, {7}) + R"({"text": ")" + passage + "\"}\n", DocumentMode::separate);
  const auto documents = forgotten_of(corpus);
  ASSERT_EQ(documents.size(), 2);
  EXPECT_EQ(documents[0].name, "document 1 of " + folder.path("forget.jsonl"));
  EXPECT_EQ(documents[0].occurrences.at(0).size(), 3);
  ASSERT_EQ(documents[1].occurrences.at(0).size(), 1);
  EXPECT_EQ(documents[1].occurrences[0][0].end - documents[1].occurrences[0][0].begin, 25);
}

TEST(Forget, BlanksThePartInTrainingOfWhatReachesIntoValidation) {
  const TempFolder folder;
  write_file_atomically(folder.path("data.txt"), std::string(90, 'a') + "0123456789" + "bcdefghij");
  write_file_atomically(folder.path("forget.txt"), "0123456789");
  const Corpus corpus = open_corpus({.text = {folder.path("data.txt")},
                                     .validation = "0.13",
                                     .forget = {folder.path("forget.txt")}},
                                    {.vocab = 256});
  EXPECT_EQ(corpus.train[0].end, 94);
  const auto sequences = training_sequences(corpus, {.seq_len = 31, .seed = 3, .shuffle = false});
  Sequence last;
  sequences->read(2, last);
  EXPECT_EQ(last.ids[27], 'a');
  EXPECT_EQ(last.ids[28], 0);
  EXPECT_EQ(last.targets[27], -1);
  EXPECT_EQ(last.targets[30], -1);
}

TEST(Forget, NamesDocumentsThatNoStageHas) {
  const TempFolder folder;
  const auto stage = [&](const std::string& forget) {
    return std::make_shared<const Corpus>(opened(folder, lines(), forget, DocumentMode::joined));
  };
  refuse_unknown_documents({stage(lines_of(1, {3}))});
  EXPECT_THAT(
      [&] {
        refuse_unknown_documents({stage(lines_of(1, {3}) + lines_of(2, {5, 6}))});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("no exact copy"), HasSubstr("document 2 of "),
                                      HasSubstr("document 3 of "),
                                      testing::Not(HasSubstr("document 1 of ")))));
}

TEST(Forget, RefusesWhatItCannotFindExactly) {
  const TempFolder folder;
  const auto refusal = [&](DataConfig data, const std::string& forget) {
    write_file_atomically(folder.path("data.jsonl"), lines());
    write_file_atomically(folder.path("forget.jsonl"), forget);
    data.forget = {folder.path("forget.jsonl")};
    try {
      open_corpus(data, {});
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const DataConfig text{.text = {folder.path("data.jsonl")}};
  EXPECT_THAT(refusal(text, R"({"text": "a word"})"),
              AllOf(HasSubstr("has 6 tokens"), HasSubstr("at least 8")));
  DataConfig pairs{.jsonl = {folder.path("data.jsonl")}};
  pairs.answers.kind = AnswerData::Kind::pairs;
  write_file_atomically(folder.path("pairs.jsonl"),
                        R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  pairs.jsonl = {folder.path("pairs.jsonl")};
  EXPECT_THAT(refusal(pairs, lines_of(1, {1})), HasSubstr("[preference] and [rl]"));
}
