#include "axonn/data/text/pattern_borders.h"

#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/word_pattern.h"

using namespace axonn;

namespace {

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The ends of all words.
std::set<std::size_t> ends_of(const WordPattern& pattern, std::string_view text) {
  WordPattern::Matcher matcher(pattern);
  std::set<std::size_t> ends;
  for (std::size_t at = 0; at < text.size();)
    ends.insert(at += matcher.first_word(text.substr(at)));
  return ends;
}

/// The same if the text is cut.
std::set<std::size_t> ends_of_pieces(const WordPattern& pattern, std::string_view text,
                                     std::size_t cut) {
  std::set<std::size_t> ends = ends_of(pattern, text.substr(0, cut));
  for (const std::size_t end : ends_of(pattern, text.substr(cut))) ends.insert(cut + end);
  return ends;
}

}  // namespace

TEST(PatternBorders, LieBetweenKindsOfCharactersOfAnyScript) {
  for (const std::string& pattern : {std::string(kGpt2Pattern), std::string(kLlama3)}) {
    const PatternBorders borders(to_pcre2(pattern, "P"));
    EXPECT_TRUE(borders.always("日", "，"));
    EXPECT_TRUE(borders.always("a", " "));
    EXPECT_TRUE(borders.always("é", "\n"));
    EXPECT_TRUE(borders.always("\u0e27", "\u0e31")) << "a Thai letter, and a vowel sign above it";
    EXPECT_FALSE(borders.always("日", "本"));
    EXPECT_FALSE(borders.always(" ", "本"));
    EXPECT_FALSE(borders.always("'", "s"));
    EXPECT_FALSE(borders.always("\n", "\n"));
    EXPECT_FALSE(borders.always("\n", "本")) << "the last of several spaces is a word of its own";
  }
  EXPECT_TRUE(PatternBorders(to_pcre2(kGpt2Pattern, "P")).always("，", "本"));
  EXPECT_FALSE(PatternBorders(to_pcre2(kLlama3, "P")).always("，", "本"));
}

TEST(PatternBorders, LeaveTheWordsOfEveryTextAsTheyAre) {
  const std::vector<std::string> patterns{kLlama3,
                                          std::string(kGpt2Pattern),
                                          "ab",
                                          "ab|a",
                                          "a+b?",
                                          "(?i:AB)+",
                                          "b(?=a)|a",
                                          "a(?!b)|b",
                                          "(?>ab?)b|[^a]",
                                          "a?+b|ab|b",
                                          "(a|b){2}|.",
                                          "(?:ab){0,2}c|a|b",
                                          "[^b]+b|b",
                                          "a{2}|a|b",
                                          "a(?=bc)|b|c",
                                          "(?:a(?!b)|b)+|c",
                                          "(?:a|(?:b|c)+a)c?",
                                          R"([\]a]|b)",
                                          R"(\x61b|c)",
                                          R"((?:\x{61})+|\p{L}b)",
                                          ".b|b",
                                          "a{0}b|a",
                                          "(?:a?b?){1,2}c",
                                          "a*?b|c",
                                          "(?!c)[a-c]+|c",
                                          "a|[bc]++a|b"};
  const std::vector<std::string> characters{"a",  "b",  "c", "A", " ",
                                            "\n", "日", "1", "]", "\u017f"};
  std::mt19937 engine(1);
  int borders_found = 0;
  for (const std::string& pattern : patterns) {
    const PatternBorders borders(to_pcre2(pattern, "P"));
    const WordPattern compiled(pattern, "P");
    for (int i = 0; i < 300; ++i) {
      std::string text;
      std::vector<std::size_t> places;
      std::string left;
      for (int n = 0; n < 12; ++n) {
        const std::string& right = characters[engine() % (i % 2 ? 3 : characters.size())];
        if (n > 0 && borders.always(left, right)) places.push_back(text.size());
        text += right;
        left = right;
      }
      if (places.empty()) continue;
      const auto ends = ends_of(compiled, text);
      for (const std::size_t at : places)
        EXPECT_EQ(ends, ends_of_pieces(compiled, text, at))
            << pattern << " on " << testing::PrintToString(text) << " at " << at;
      borders_found += static_cast<int>(places.size());
    }
  }
  EXPECT_GT(borders_found, 5000);
}

TEST(PatternBorders, ThereAreNoneInAPatternThatIsNotUnderstood) {
  const auto none = [](const std::string& pattern) {
    return !PatternBorders(pattern).always("a", " ");
  };
  EXPECT_FALSE(none(R"(\p{L}+|\s+)"));
  EXPECT_TRUE(none(R"(\p{L}+|\s+|a{,3})"));
  EXPECT_TRUE(none(R"(\p{L}+|\s+|\pL)"));
  EXPECT_TRUE(none(R"(\p{L}+|\s+|(?<=a)b)"));
  std::string many = R"(\p{L}+|\s+)";
  for (int i = 0; i < 130; ++i) many += "|a";
  EXPECT_TRUE(none(many));
}
