#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/text/word_pattern.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::string> words_of(const std::string& pattern, std::string_view text) {
  const WordPattern compiled(pattern, "P");
  WordPattern::Matcher matcher(compiled);
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, matcher.first_word(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

}  // namespace

TEST(SplitPattern, SpacesAreUnicodesInsideAndOutsideOfClasses) {
  const std::string spaces = " \t\n\v\f\r\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000";
  EXPECT_THAT(words_of(R"(\s+)", "a" + spaces + "b"), ElementsAre("a", spaces, "b"));
  EXPECT_THAT(words_of(R"([\s]+)", "a" + spaces + "b"), ElementsAre("a", spaces, "b"));
  EXPECT_THAT(words_of(R"(\S+)", "a" + spaces + "b"), ElementsAre("a", spaces, "b"));
  EXPECT_THAT(words_of(R"([\Sx]+)", "a" + spaces + "b"), ElementsAre("a", spaces, "b"));
  EXPECT_THAT(words_of(R"([^\s]+)", "a" + spaces + "b"), ElementsAre("a", spaces, "b"));
  for (const std::string other : {"\u180e", "\u200b", "\u2060", "\ufeff", "\x1c"})
    EXPECT_THAT(words_of(R"([\S]+|\s)", "a" + other + "b"), ElementsAre("a" + other + "b"));
}

TEST(SplitPattern, DigitsAreUnicodes) {
  EXPECT_THAT(words_of(R"(\d+)", "1\u0663½"), ElementsAre("1\u0663", "½"));
}

TEST(SplitPattern, TextBetweenTwoMatchesIsAWord) {
  EXPECT_THAT(words_of("b+", "aabbabb"), ElementsAre("aa", "bb", "a", "bb"));
  EXPECT_THAT(words_of("b+", "aaa"), ElementsAre("aaa"));
  EXPECT_THAT(words_of(R"(\u00e9)", "aéa"), ElementsAre("a", "é", "a"));
}

TEST(SplitPattern, CaseIsIgnoredInAGroupWithThatOption) {
  EXPECT_THAT(words_of("(?i:'s)|x", "'S's'ſX"), ElementsAre("'S", "'s", "'ſ", "X"));
}

TEST(SplitPattern, SyntaxThatTheTwoLibrariesReadDifferentlyIsRefusedWithItsPlace) {
  for (const char* pattern : {R"(a\w)", R"(a\b)", R"(a\h)", R"(a\v)", R"(a\R)", R"(a\G)", "a^",
                              "a$", "a(?<=b)", "a(?<n>b)", "a(?i)b", "a[[:alpha:]]", "a[a&&b]",
                              "a[]b]", "a(*UCP)", R"(a\pL)", R"(a\u12)", R"(a\)", R"(a\1)"})
    EXPECT_THAT([&] { to_pcre2(pattern, "P"); }, testing::ThrowsMessage<UsageError>(AllOf(
                                                     HasSubstr("P, at "), HasSubstr("not supp"))))
        << pattern;
  for (const char* pattern : {"a{1,2}+", "a{3}+", "a{3,}+", R"(\x{61}{2}+)"})
    EXPECT_THROW(to_pcre2(pattern, "P"), UsageError) << pattern;
  EXPECT_THAT(words_of(R"(\x{61}+|b{2}|.)", "aaabbb"), ElementsAre("aaa", "bb", "b"));
  EXPECT_THAT([] { to_pcre2(R"(\x{61)", "P"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("\\x{ without }")));
  EXPECT_NO_THROW(to_pcre2(R"(\p{L}++[^\r\n\p{N}]?+(?>a)(?=b)(?!c)\x41\x{e9}\.\[)", "P"));
}

TEST(SplitPattern, BracesAreQuantifiersWhereOnigurumaHasThem) {
  EXPECT_THAT(words_of("o{,2}k|.", "ook ok k oook"),
              ElementsAre("ook", " ", "ok", " ", "k", " ", "o", "ook"));
  EXPECT_THAT(words_of("fo{,1}x|[a-z]+|[^a-z]+", "fox fx foox"),
              ElementsAre("fox", " ", "fx", " ", "foox"));
  EXPECT_THAT(words_of("b{ 1,2 }|.", "bb{ 1,2 }"), ElementsAre("b", "b{ 1,2 }"));
  EXPECT_THAT(words_of("b{,}|.", "bbb{,}"), ElementsAre("b", "b", "b{,}"));
  EXPECT_THAT(words_of("b{1,2|.", "b{1,2"), ElementsAre("b{1,2"));
  EXPECT_THAT(words_of("b{x}|.", "bb{x}"), ElementsAre("b", "b{x}"));
  EXPECT_THROW(to_pcre2("b{,2}+", "P"), UsageError);
}
