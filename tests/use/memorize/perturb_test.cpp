#include "axonn/use/memorize/perturb.h"

#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/arms.h"
#include "axonn/use/memorize/synonyms.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

std::vector<std::string> rows_of_synonyms() {
  std::istringstream stream{std::string(paraphrase::kSynonyms)};
  std::vector<std::string> rows;
  for (std::string row; std::getline(stream, row, ';');) rows.push_back(row);
  return rows;
}

std::vector<std::string> split_words(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = ' ';
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

constexpr const char* kRecord =
    "On March 1851 a doctor from Kingsham lent 162 pounds to Ralph Abbot. Heirs: Paul Brandt "
    "82168455, Ida Ellis 93321926, Paul Mercer 33118695.";

}  // namespace

TEST(Synonyms, AreInOneRowEachAndTakeTheSameArticle) {
  EXPECT_EQ(rows_of_synonyms().size(), 145u) << "as docs/memorization.md says";
  std::set<std::string> seen;
  for (const std::string& row : rows_of_synonyms()) {
    const std::vector<std::string> words = split_words(row);
    ASSERT_GE(words.size(), 2u) << row;
    std::set<bool> vowels;
    for (const std::string& word : words) {
      EXPECT_TRUE(seen.insert(word).second) << word << " is in two rows";
      vowels.insert(std::string("aeiou").find(word[0]) != std::string::npos);
    }
    EXPECT_EQ(vowels.size(), 1u) << row;
  }
}

TEST(Paraphrased, IsTheTextWithSynonymsAndNeighbouringSentencesInAnotherOrder) {
  std::map<std::string, std::string> first;  // of the row of each word
  for (const std::string& row : rows_of_synonyms())
    for (const std::string& word : split_words(row)) first[word] = split_words(row)[0];
  const auto plain = [&](const std::string& text) {
    std::multiset<std::string> all;
    for (std::string word : split_words(text)) {
      word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
      all.insert(first.contains(word) ? first[word] : word);
    }
    return all;
  };
  std::set<std::string> found;
  int swapped = 0, changed = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::string text = paraphrased(kRecord, seed);
    EXPECT_NE(text, kRecord);
    EXPECT_EQ(plain(text), plain(kRecord)) << text;
    EXPECT_EQ(text, paraphrased(kRecord, seed));
    swapped += text.starts_with("Heirs: ") || text.starts_with("Successors: ");
    changed += text.find("physician") != std::string::npos;
    found.insert(text);
  }
  // Each with a chance of one half: 200 of 400, deviation 10. Four words and the order: 2^5 texts,
  // without the record itself.
  EXPECT_NEAR(swapped, 200, 60);
  EXPECT_NEAR(changed, 200, 60);
  EXPECT_EQ(found.size(), 31u);
}

TEST(Paraphrased, KeepsLinesAbbreviationsAndWhatItDoesNotKnow) {
  const std::string text = "Mr. Quill met J. Webb in\n\xc3\x84gypten! 12.5 of";
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(paraphrased(text, seed), text);
  EXPECT_EQ(paraphrased("Xyz. Abc", 1), "Xyz. Abc") << "the last sentence is cut";
  EXPECT_EQ(paraphrased("Xyz? Abc.\nXyz. Abc!", 1).size(), 19u);
  EXPECT_EQ(paraphrased("Xyz? Abc.", 1), "Abc. Xyz?") << "the one place there is";
  EXPECT_EQ(paraphrased("HOUSE House", 3), "HOUSE Dwelling");
}

TEST(TranslatedNames, AreOtherNamesTheSameEverywhere) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = with_translated_names(kRecord, seed);
    const std::vector<std::string> before = split_words(kRecord), after = split_words(text);
    ASSERT_EQ(after.size(), before.size());
    std::map<std::string, std::string> names;
    const std::set<std::string> expected{"Kingsham", "Ralph", "Abbot", "Paul",
                                         "Brandt",   "Ida",   "Ellis", "Mercer"};
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!expected.contains(before[i])) {
        EXPECT_EQ(after[i], before[i]);
        continue;
      }
      ASSERT_EQ(after[i].size(), before[i].size());
      const auto [at, added] = names.emplace(before[i], after[i]);
      EXPECT_EQ(at->second, after[i]) << "Paul stands there twice";
      for (std::size_t c = 0; c < before[i].size(); ++c) {
        const auto is_vowel = [](char letter) {
          return std::string("AEIOUaeiou").find(letter) != std::string::npos;
        };
        EXPECT_NE(after[i][c], before[i][c]);
        EXPECT_EQ(is_vowel(after[i][c]), is_vowel(before[i][c])) << after[i];
        EXPECT_EQ(std::isupper(after[i][c]) != 0, c == 0) << after[i];
      }
    }
    EXPECT_EQ(names.size(), expected.size());
    // The same language in another text.
    EXPECT_THAT(with_translated_names("We met Kingsham.", seed), HasSubstr(names["Kingsham"]));
  }
}

TEST(TranslatedNames, AreNoFirstWordsOfSentencesUnlessANameFollows) {
  const std::string kept = "Stones fell. The sea rose in May.\nHowever, \"Nothing is lost\".";
  EXPECT_EQ(with_translated_names(kept, 1), kept);
  const std::string text = with_translated_names("Cora Webb came. Stones fell on Cora. When", 1);
  EXPECT_THAT(text, Not(HasSubstr("Cora")));
  EXPECT_THAT(text, AllOf(HasSubstr(" came. Stones fell on "), testing::EndsWith(". When")));
}

namespace {

TrialDocuments perturbed_documents(BucketConfig arm, std::uint64_t seed = 1) {
  arm.name = "arm";
  arm.size = 4;
  arm.when = {0, 1};
  return documents_of_arms(std::vector{arm}, {}, *make_tokenizer("bytes"),
                           {.seed = seed, .limits = {.least = 51, .most = 193}});
}

std::string text_of_document(const StudyDocument& one) {
  return {one.tokens.begin(), one.tokens.end()};
}

}  // namespace

TEST(Arms, WithPerturbationsLearnTheseInPlaceOfTheDocument) {
  for (const Perturbation kind : {Perturbation::paraphrase, Perturbation::names})
    for (const std::int64_t variants : {1, 3}) {
      const TrialDocuments all =
          perturbed_documents({.times = 3, .perturbation = kind, .variants = variants});
      ASSERT_EQ(std::ssize(*all.all), 4 * (1 + variants));
      for (std::int64_t d = 0; d < 4; ++d) {
        const std::string itself = text_of_document((*all.all)[d]);
        EXPECT_EQ(all.first_variant[d], 4 + d * variants);
        for (std::int64_t v = 0; v < variants; ++v) {
          const StudyDocument& copy = (*all.all)[all.first_variant[d] + v];
          EXPECT_NE(text_of_document(copy), itself);
          EXPECT_EQ(all.original[all.first_variant[d] + v], d);
          EXPECT_THAT(copy.name, testing::EndsWith("of " + (*all.all)[d].name));
          if (kind == Perturbation::names) {  // only letters of names differ
            EXPECT_EQ(copy.tokens.size(), itself.size());
          }
        }
      }
    }
  // In a control nothing comes, and documents of several variants are near-duplicates as ever.
  EXPECT_EQ(perturbed_documents({.times = 0, .variants = 4}).all->size(), 4u);
  const TrialDocuments near = perturbed_documents({.times = 2, .variants = 2});
  EXPECT_THAT((*near.all)[4].name, testing::StartsWith("near-duplicate 1 of "));
}

TEST(Arms, WhoseDocumentsHaveNothingToPerturbAreRefused) {
  const FoundDocuments given{
      .documents = std::vector<StudyDocument>{{"document 1 of x", {'a', 'b', 'c', 'd'}}},
      .found = 1};
  for (const auto& [kind, what] :
       {std::pair{Perturbation::paraphrase, "\"paraphrase\" finds no word that it knows"},
        std::pair{Perturbation::names, "\"names\" finds no name in document 1 of x"}}) {
    const std::vector<BucketConfig> arms{{.name = "a",
                                          .size = 1,
                                          .times = 1,
                                          .when = {0, 1},
                                          .kind = DocumentKind::text,
                                          .perturbation = kind}};
    EXPECT_THAT([&] { documents_of_arms(arms, given, *make_tokenizer("bytes"), {}); },
                testing::ThrowsMessage<UsageError>(HasSubstr(what)));
  }
}

TEST(Buckets, RefusePerturbationsAndLossesThatDoNothing) {
  test::TemporaryPath folder;
  const auto refusal = [&](BucketConfig bucket, const std::function<void(Config&)>& change = {}) {
    Config config = tiny_config(folder / "study");
    config.training.seq_len = 192;
    config.training.steps = 30;
    config.lr_scheduler.warmup_steps = 5;
    if (change) change(config);
    bucket.name = "arm";
    const MemorizeConfig memorize{
        .losses = {"standard"},
        .buckets = {{.name = "none", .size = 2},
                    {.name = "no words", .size = 2, .kind = DocumentKind::uniform},
                    bucket}};
    try {
      validate_study(config, memorize);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  constexpr auto kNames = Perturbation::names;
  EXPECT_EQ(refusal({.times = 2, .perturbation = kNames}), "accepted");
  EXPECT_EQ(refusal({.times = 2, .loss = BucketLoss::none}), "accepted");
  EXPECT_THAT(refusal({.times = 2, .kind = DocumentKind::uniform, .perturbation = kNames}),
              HasSubstr("perturbation = names of kind = \"uniform\", which has no words"));
  EXPECT_THAT(refusal({.times = 2, .perturbation = kNames, .variants = 3}),
              HasSubstr("times = 2 leaves out some of variants = 3"));
  EXPECT_THAT(refusal({.times = 2, .loss = BucketLoss::none},
                      [](Config& config) { config.data.documents = DocumentMode::separate; }),
              HasSubstr("loss = \"none\" puts documents in front of other text"));
}
