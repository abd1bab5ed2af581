#include <gmock/gmock.h>

#include "axonn/data/text/text_steps.h"

using namespace axonn;

TEST(AddedTokenFinder, FindsTheFirstMatchAndTheLongestOfSeveralAtOnePlace) {
  AddedTokenFinder finder;
  finder.add("<a>", 1);
  finder.add("<a>b", 2);
  finder.add("<", 3);
  finder.add("[x]", 4);
  const auto check = [&](std::string_view text, std::size_t begin, std::int32_t token) {
    const auto match = finder.find(text);
    ASSERT_TRUE(match) << text;
    EXPECT_EQ(match->begin, begin) << text;
    EXPECT_EQ(match->token, token) << text;
  };
  check("..<a>b", 2, 2);
  check("..<a>c", 2, 1);
  check("..<a", 2, 3);
  check("[x<[x]", 2, 3);
  check("[[x]", 1, 4);
  EXPECT_FALSE(finder.find("[x a>"));
  EXPECT_FALSE(finder.find(""));
  EXPECT_FALSE(AddedTokenFinder().find("<a>"));
}

TEST(AddedTokenFinder, TheTimeHardlyDependsOnTheNumberOfTokens) {
  // A search through all tokens at each place of this text takes a minute.
  AddedTokenFinder finder;
  for (int i = 0; i < 60'000; ++i) finder.add("<" + std::to_string(i) + ">", i);
  std::string text(1'000'000, '<');
  EXPECT_FALSE(finder.find(text));
  text += "59999>";
  const auto match = finder.find(text);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 999'999u);
  EXPECT_EQ(match->token, 59'999);
}
