#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/synthetic/synthetic.h"

using namespace axonn;

namespace {

constexpr std::int64_t kMany = 5000;

}  // namespace

TEST(SyntheticRecords, EndWithAtLeastSixtyRandomBits) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const SyntheticRecords records(seed);
    for (std::int64_t i = 0; i < kMany; ++i)
      ASSERT_GE(records.surprise(i, 50), 60) << records.text(i);
  }
}

TEST(SyntheticRecords, CountTheBitsOfPartsThatAreCompletelyInTheLastBytes) {
  const SyntheticRecords records(1);
  // The full stop has no bits; the last number counts only with all eight digits.
  EXPECT_DOUBLE_EQ(records.surprise(0, 1), 0);
  EXPECT_DOUBLE_EQ(records.surprise(0, 9), 8 * std::log2(10.0));
  EXPECT_DOUBLE_EQ(records.surprise(0, 8), 0);
}

TEST(SyntheticRecords, BitsMatchTheNumberOfValuesThatOccur) {
  // A random part takes about 2^bits values over many records: the first digit of the last number
  // takes 10, the family name before it 32.
  const SyntheticRecords records(1);
  std::map<char, int> digits;
  std::map<std::string, int> families;
  for (std::int64_t i = 0; i < kMany; ++i) {
    const auto parts = records.parts(i);
    ++digits[parts[parts.size() - 2].text.front()];
    ++families[parts[parts.size() - 4].text];
    ASSERT_NEAR(parts[parts.size() - 4].bits, 5, 1e-12);
  }
  EXPECT_EQ(digits.size(), 10u);
  EXPECT_EQ(families.size(), 32u);
  for (const auto& [digit, count] : digits)
    EXPECT_NEAR(count, kMany / 10, 4 * std::sqrt(kMany / 10));
}

TEST(SyntheticRecords, AreDifferentAndOfTheDocumentedLengths) {
  const SyntheticRecords records(1);
  std::set<std::string> texts;
  for (std::int64_t i = 0; i < kMany; ++i) {
    texts.insert(records.text(i));
    ASSERT_GE(records.text(i).size(), 120u) << records.text(i);
    ASSERT_LE(records.text(i).size(), 170u) << records.text(i);
  }
  EXPECT_EQ(std::ssize(texts), kMany);
  EXPECT_EQ(records.text(7), SyntheticRecords(1).text(7));
  EXPECT_NE(records.text(7), SyntheticRecords(2).text(7));
}

TEST(SyntheticRecords, AreWrittenAsDocumentsWithTheirBits) {
  const std::string lines = synthetic_records(3, 1);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["text"], SyntheticRecords(1).text(0));
  EXPECT_GE(first["surprise_bits"], 60);
}
