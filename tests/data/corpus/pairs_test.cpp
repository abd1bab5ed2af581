#include "axonn/data/corpus/pairs.h"

#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string refusal_of_pair(const std::string& line) {
  try {
    parse_pair(line, "FILE:7");
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

/// Two documents of each pair: prompts of one token, answers of so many.
DocumentRange coded_pairs(const std::vector<std::pair<int, int>>& answers) {
  DocumentWriter writer("", "pairs");
  for (const auto& [chosen, rejected] : answers)
    for (const int count : {chosen, rejected}) {
      std::vector<std::int32_t> coded{~5};
      for (int i = 0; i < count; ++i) coded.push_back(10 + i);
      writer.append(coded);
    }
  auto documents = writer.finish();
  const std::int64_t count = documents->count();
  return {std::move(documents), 0, count};
}

}  // namespace

TEST(Pairs, HaveThePromptOfTheirLineOrWhatBothAnswersBeginWith) {
  const TextPair given = parse_pair(R"({"prompt": "is", "chosen": " it", "rejected": " he"})", "");
  EXPECT_EQ(given.prompt, "is");
  EXPECT_EQ(given.chosen, " it");
  const TextPair implied =
      parse_pair(R"({"chosen": "the sky is blue", "rejected": "the sky is green"})", "");
  EXPECT_EQ(implied.prompt, "the sky is");
  EXPECT_EQ(implied.chosen, " blue");
  EXPECT_EQ(implied.rejected, " green");
  EXPECT_EQ(shared_prompt("yes, it is", "yes, it is not"), 9) << "the shorter one has an answer";
  EXPECT_EQ(shared_prompt("a\xC3\xA4", "a\xC3\xB6"), 1) << "a character is not cut";
}

TEST(Pairs, AreRefusedWithTheirLineAndARemedy) {
  EXPECT_THAT(refusal_of_pair(R"({"prompt": "a", "chosen": "b"})"),
              HasSubstr("FILE:7: there is no \"rejected\""));
  EXPECT_THAT(refusal_of_pair(R"({"prompt": [], "chosen": "b", "rejected": "c"})"),
              HasSubstr("write them as texts"));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": 1, "rejected": "c"})"), HasSubstr("is not a string"));
  EXPECT_THAT(refusal_of_pair(R"({"chosen": "c", "rejected": "c"})"), HasSubstr("are the same"));
  EXPECT_THAT(refusal_of_pair("[1]"), HasSubstr("not a JSON object"));
}

TEST(Pairs, BeginTheirAnswersWhereTheTokensOfThePromptEnd) {
  const auto bytes = make_tokenizer("bytes");
  const CodedPair coded = encode_pair(*bytes, {"ab", "c", "de"});
  EXPECT_THAT(coded.chosen, ElementsAre(~'a', ~'b', 'c'));
  EXPECT_THAT(coded.rejected, ElementsAre(~'a', ~'b', 'd', 'e'));
}

TEST(Pairs, AreSequencesOfTwoDocumentsThatDoNotSeeEachOther) {
  const PairSequences pairs(coded_pairs({{2, 1}}), 5, 0, ExcessLength::split);
  ASSERT_EQ(pairs.count(), 1);
  Sequence rows;
  pairs.read(0, rows);
  EXPECT_THAT(rows.ids, ElementsAre(5, 10, 5, 0, 0));
  EXPECT_THAT(rows.targets, ElementsAre(10, 11, 10, kPaddingTarget, kPaddingTarget));
  EXPECT_THAT(rows.positions, ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(rows.starts, ElementsAre(0, 0, 2, 3, 4));
  EXPECT_EQ(pairs.size(0).targets, 3);
  EXPECT_EQ(pairs.size(0).inputs, 3);
}

TEST(Pairs, ThatAreLongerThanASequenceAreRefusedOrLeftOut) {
  const auto make = [](ExcessLength excess) {
    return PairSequences(coded_pairs({{2, 1}, {4, 4}}), 5, 0, excess);
  };
  EXPECT_THAT([&] { make(ExcessLength::split); },
              testing::ThrowsMessage<UsageError>(HasSubstr("pair 2 of pairs has 8 tokens")));
  EXPECT_EQ(make(ExcessLength::drop).count(), 1);
  EXPECT_THAT(make(ExcessLength::drop).notes(),
              ElementsAre(HasSubstr("1 of 2 pairs are longer than 5 tokens")));
}

TEST(Pairs, AreReadFromTheLinesOfFiles) {
  test::TemporaryPath folder;
  std::ofstream(folder / "a.jsonl") << R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                                    << "\n\n"
                                    << R"({"chosen": "x1", "rejected": "x2"})" << '\n';
  const auto documents = encode_pairs({folder / "a.jsonl"}, *make_tokenizer("bytes"));
  ASSERT_EQ(documents->count(), 4);
  EXPECT_THAT(documents->coded(1), ElementsAre(~'a', 'c'));
  EXPECT_THAT(documents->coded(2), ElementsAre(~'x', '1'));
}
