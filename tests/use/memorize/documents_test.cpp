#include "axonn/use/memorize/documents.h"

#include <fstream>
#include <set>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

std::string text_of(const StudyDocument& document) {
  return {document.tokens.begin(), document.tokens.end()};
}

FoundDocuments read(const std::string& lines, const DocumentLimits& limits) {
  test::TemporaryPath folder;
  const std::string path = folder / "all.jsonl";
  std::ofstream(path) << lines;
  return read_documents({path}, make_tokenizer("bytes"), limits, {}, {});
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST(StudyDocuments, AreCutAndShortOnesAndDuplicatesAreLeftOut) {
  const FoundDocuments all = read(
      "{\"text\": \"abcdefgh\"}\n{\"text\": \"abc\"}\n\n{\"text\": \"ABCDEFGHIJKL\"}\n"
      "{\"text\": \"abcdefgh\"}\n{\"text\": \"abcdefghZZ\"}\n",
      {.least = 4, .most = 8});
  ASSERT_EQ(all.documents.size(), 2);
  EXPECT_EQ(text_of(all.documents[0]), "abcdefgh");
  EXPECT_EQ(text_of(all.documents[1]), "ABCDEFGH");
  EXPECT_THAT(all.documents[1].name, HasSubstr("document 3 of "));
  EXPECT_EQ(all.found, 5);
  EXPECT_EQ(all.too_short, 1);
  EXPECT_EQ(all.repeated, 2) << "the last document equals the first once it is cut";
}

TEST(StudyDocuments, AreCutIntoWindowsWithAStride) {
  const FoundDocuments all =
      read("{\"text\": \"abcdefghijk\"}\n{\"text\": \"XYZ12\"}\n{\"text\": \"abcdZ\"}\n",
           {.least = 3, .most = 5, .stride = 3});
  ASSERT_EQ(all.documents.size(), 5);
  for (const auto& [i, text] : {std::pair{0, "abcde"}, {1, "defgh"}, {2, "ghijk"}, {3, "XYZ12"}})
    EXPECT_EQ(text_of(all.documents[i]), text);
  EXPECT_THAT(all.documents[1].name, testing::StartsWith("tokens 4 to 8 of document 1 of "));
  EXPECT_THAT(all.documents[3].name, testing::StartsWith("document 2 of "));
  EXPECT_EQ(all.found, 5);
}

TEST(GeneratedDocuments, SayHowManyBitsTheirSuffixesHoldUnlessTheyAreCut) {
  const auto tokenizer = make_tokenizer("bytes");
  const SyntheticRecords records(5);
  for (const std::int64_t most : {193, 140}) {
    const FoundDocuments all = generated_documents(20, 5, *tokenizer, {.least = 51, .most = most});
    ASSERT_EQ(all.documents.size(), 20);
    for (std::int64_t i = 0; i < 20; ++i) {
      const StudyDocument one = all.documents[i];
      const bool cut = std::ssize(records.text(i)) > most;
      EXPECT_EQ(one.bits_of, cut ? 0 : 50);
      if (!cut) {
        EXPECT_EQ(one.bits, records.surprise(i, 50));
      }
    }
  }
}

TEST(StudyDocuments, OfAnotherKindAreRefused) {
  EXPECT_THAT(refusal([] {
                read("{\"prompt\": \"a\", \"completion\": \"b\"}\n", {1, 8});
              }),
              HasSubstr("all.jsonl:1: there is no \"text\""));
}

TEST(StudyDocuments, AreFilesOfTextAndRowsOfTables) {
  test::TemporaryPath folder;
  std::ofstream(folder / "a.txt") << "the first text";
  std::ofstream(folder / "b.csv") << "n,text\n1,a row\n2,\"another\nrow\"\n";
  const FoundDocuments all =
      read_documents({folder / ""}, make_tokenizer("bytes"), {.least = 1, .most = 99}, {}, {});
  ASSERT_EQ(all.documents.size(), 3);
  EXPECT_EQ(text_of(all.documents[0]), "the first text");
  EXPECT_EQ(text_of(all.documents[2]), "another\nrow");
}

TEST(StudyDocuments, AreGeneratedFromASeed) {
  const auto tokenizer = make_tokenizer("bytes");
  const auto all = generated_documents(50, 1, *tokenizer, {.least = 51, .most = 256});
  EXPECT_EQ(all.documents.size(), 50);
  EXPECT_THAT(text_of(all.documents[3]), HasSubstr("Heirs: "));
  EXPECT_NE(text_of(generated_documents(1, 2, *tokenizer, {1, 256}).documents[0]),
            text_of(all.documents[0]));
}

TEST(Draw, GivesDifferentDocumentsInAnOrderThatDependsOnTheSeed) {
  const auto tokenizer = make_tokenizer("bytes");
  const auto all = generated_documents(40, 1, *tokenizer, {.least = 51, .most = 256});
  const auto names = [&](std::uint64_t seed) {
    std::vector<std::string> drawn;
    for (const StudyDocument& document : draw_documents(all, 30, seed))
      drawn.push_back(document.name);
    return drawn;
  };
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
  const auto one = names(1);
  EXPECT_EQ(std::set(one.begin(), one.end()).size(), 30u);
}

TEST(Draw, RefusesTooFewDocumentsAndSaysWhyOthersCannotBeUsed) {
  FoundDocuments few;
  few.documents = std::vector<StudyDocument>(3);
  few.found = 10;
  few.too_short = 5;
  few.repeated = 2;
  EXPECT_THAT(refusal([&] { draw_documents(few, 8, 1); }),
              AllOf(HasSubstr("need 8 documents"), HasSubstr("of the 10 found only 3"),
                    HasSubstr("5 are too short, 2 are duplicates")));
}
