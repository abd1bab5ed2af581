#include "axonn/use/memorize/recite.h"

#include <gtest/gtest.h>

using namespace axonn;

namespace {

using Tokens = std::vector<std::int32_t>;

Recitation compared(const Tokens& truth, const Tokens& written) {
  Recitation recitation;
  compare_tokens(truth, written, recitation);
  return recitation;
}

TEST(Recitation, OfEqualTextsIsExact) {
  const Recitation r = compared({1, 2, 3, 4}, {1, 2, 3, 4});
  EXPECT_TRUE(r.exact);
  EXPECT_EQ(r.longest_run, 4);
  EXPECT_DOUBLE_EQ(r.token_accuracy, 1);
  EXPECT_EQ(r.edit_distance, 0);
}

TEST(Recitation, WithOneWrongTokenIsNotExact) {
  const Recitation r = compared({1, 2, 3, 4, 5}, {1, 2, 9, 4, 5});
  EXPECT_FALSE(r.exact);
  EXPECT_EQ(r.longest_run, 2);
  EXPECT_DOUBLE_EQ(r.token_accuracy, 0.8);
  EXPECT_EQ(r.edit_distance, 1);
}

TEST(Recitation, FindsACommonRunThatIsShifted) {
  // A token was inserted: no position agrees after it, but the run continues.
  const Recitation r = compared({1, 2, 3, 4, 5, 6}, {9, 1, 2, 3, 4, 5});
  EXPECT_EQ(r.longest_run, 5);
  EXPECT_DOUBLE_EQ(r.token_accuracy, 0);
  EXPECT_EQ(r.edit_distance, 2);
}

TEST(Recitation, CountsMissingTokensAsErrors) {
  const Recitation r = compared({1, 2, 3, 4}, {1, 2});
  EXPECT_FALSE(r.exact);
  EXPECT_EQ(r.longest_run, 2);
  EXPECT_DOUBLE_EQ(r.token_accuracy, 0.5);
  EXPECT_EQ(r.edit_distance, 2);
  EXPECT_EQ(compared({1, 2, 3}, {}).edit_distance, 3);
}

TEST(Recitation, IsNotExactIfTheTextIsLonger) { EXPECT_FALSE(compared({1, 2}, {1, 2, 3}).exact); }

TEST(Recitation, EditDistanceIsThatOfTextbookExamples) {
  // "kitten" and "sitting": two changes and an insertion.
  const auto letters = [](const char* text) {
    return Tokens(text, text + std::char_traits<char>::length(text));
  };
  EXPECT_EQ(compared(letters("kitten"), letters("sitting")).edit_distance, 3);
  EXPECT_EQ(compared(letters("saturday"), letters("sunday")).edit_distance, 3);
}

}  // namespace
