#include "axonn/study/aligned_text.h"

#include <gmock/gmock.h>

#include "axonn/study/code_points.h"

using namespace axonn;

namespace {

/// "[common]not common".
std::string shown(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces)
    text += piece.common ? "[" + to_utf8(piece.points) + "]" : to_utf8(piece.points);
  return text;
}

std::string first_of(std::u32string_view a, std::u32string_view b) {
  return shown(aligned(a, b).first);
}

/// The most common characters by definition: tries every way to choose runs, from the front.
std::size_t most_common(std::u32string_view a, std::u32string_view b) {
  if (a.empty() || b.empty()) return 0;
  std::size_t most = std::max(most_common(a.substr(1), b), most_common(a, b.substr(1)));
  for (std::size_t n = 1; n <= std::min(a.size(), b.size()) && a[n - 1] == b[n - 1]; ++n)
    if (n >= kShortestCommonRun) most = std::max(most, n + most_common(a.substr(n), b.substr(n)));
  return most;
}

TEST(AlignedText, EqualTextsAreOneCommonPiece) {
  EXPECT_EQ(first_of(U"the same text", U"the same text"), "[the same text]");
  EXPECT_EQ(first_of(U"ab", U"ab"), "[ab]");
  EXPECT_EQ(first_of(U"a\u00e9\U0001f600\u6f22", U"a\u00e9\U0001f600\u6f22"),
            "[a\xc3\xa9\xf0\x9f\x98\x80\xe6\xbc\xa2]");
}

TEST(AlignedText, ChangedInsertedAndDeletedTextIsNotCommon) {
  const AlignedTexts texts =
      aligned(U"It was built in 1911 by Anna.", U"It was then built in 1912 by Anna.");
  EXPECT_EQ(shown(texts.first), "[It was built in 191]1[ by Anna.]");
  EXPECT_EQ(shown(texts.second), "[It was] then[ built in 191]2[ by Anna.]");
}

TEST(AlignedText, ShortRunsAreNotCommon) {
  EXPECT_EQ(first_of(U"abcXdefYghi", U"abcZdefWghi"), "abcXdefYghi");
  EXPECT_EQ(first_of(U"abcdXefgh", U"abcdZefgh"), "[abcd]X[efgh]");
  EXPECT_EQ(first_of(U"ab", U"ac"), "ab");
}

TEST(AlignedText, AnEmptyTextHasNothingInCommon) {
  EXPECT_EQ(first_of(U"", U""), "");
  EXPECT_EQ(first_of(U"abcde", U""), "abcde");
  EXPECT_EQ(first_of(U"", U"abcde"), "");
}

TEST(AlignedText, CommonCharactersAreTheSameInBothTextsAndAsManyAsPossible) {
  const auto random_text = [](std::uint64_t seed, std::size_t length) {
    std::u32string text;
    for (std::size_t i = 0; i < length; ++i) text += U'a' + (seed >> (2 * i) & 1);
    return text;
  };
  std::uint64_t state = 1;
  for (int trial = 0; trial < 300; ++trial) {
    const auto next = [&] { return state = state * 6364136223846793005 + 1442695040888963407; };
    const std::u32string a = random_text(next() >> 32, 4 + trial % 7),
                         b = random_text(next() >> 32, 9);
    const AlignedTexts texts = aligned(a, b);
    std::u32string first, second, whole;
    for (const TextPiece& piece : texts.first) {
      whole += piece.points;
      if (piece.common) first += piece.points;
    }
    for (const TextPiece& piece : texts.second)
      if (piece.common) second += piece.points;
    EXPECT_EQ(whole, a);
    EXPECT_EQ(to_utf8(first), to_utf8(second));
    EXPECT_EQ(first.size(), most_common(a, b)) << to_utf8(a) << ' ' << to_utf8(b);
  }
}

}  // namespace
