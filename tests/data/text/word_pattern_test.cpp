#include "axonn/data/text/word_pattern.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;

namespace {

std::vector<std::string> words_of(std::string_view text) {
  const WordPattern pattern(kGpt2Pattern, "GPT-2's");
  WordPattern::Matcher matcher(pattern);
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t bytes = matcher.first_word(text);
    words.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return words;
}

}  // namespace

TEST(WordPattern, CutsContractionsNumbersSignsAndSpacesLikeGpt2) {
  EXPECT_THAT(words_of("It's  2 dogs!\n\n x"),
              ElementsAre("It", "'s", " ", " 2", " dogs", "!", "\n\n", " x"));
  EXPECT_THAT(words_of("we'll they've I'm don't"),
              ElementsAre("we", "'ll", " they", "'ve", " I", "'m", " don", "'t"));
  EXPECT_THAT(words_of("ab12cd"), ElementsAre("ab", "12", "cd"));
  EXPECT_THAT(words_of("I'D"), ElementsAre("I", "'", "D"));  // only lower-case contractions count
  EXPECT_THAT(words_of("end   "), ElementsAre("end", "   "));
  EXPECT_THAT(words_of("a\tb"), ElementsAre("a", "\t", "b"));
  EXPECT_THAT(words_of("x = ++y;"), ElementsAre("x", " =", " ++", "y", ";"));
}

TEST(WordPattern, AWordOfAnyLengthIsOneWord) {
  // The pattern sees 256 bytes at first, and more if a word does not end there.
  for (std::size_t n = 240; n < 270; ++n) {
    for (const std::string unit : {"a", "é", "日", "7", "!"}) {
      std::string word;
      while (word.size() < n) word += unit;
      const std::string last = unit == "!" ? "x" : "!";
      EXPECT_THAT(words_of(word + last + word), ElementsAre(word, last, word)) << n << unit;
    }
    EXPECT_THAT(words_of(std::string(n, ' ') + "b"), ElementsAre(std::string(n - 1, ' '), " b"));
  }
  EXPECT_THAT(words_of(std::string(5000, ' ') + "b"), ElementsAre(std::string(4999, ' '), " b"));
}

TEST(WordPattern, APatternThatTakesTooLongIsRefused) {
  const std::string text(20'000, 'a');
  const auto cut = [&](const WordPattern& pattern) {
    WordPattern::Matcher matcher(pattern);
    for (std::string_view rest = text; !rest.empty();
         rest.remove_prefix(matcher.first_word(rest))) {
    }
  };
  // The first looks ahead to the end of the text at each letter, the second tries all ways.
  const WordPattern far("(?=.*b)x|a", "P"), tries("(?:a|aa)+b|a", "P"), good("a", "P");
  EXPECT_NO_THROW(cut(good));
  EXPECT_THAT([&] { cut(far); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("bytes of text into words")));
  EXPECT_THAT([&] { cut(tries); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("match limit exceeded")));
  EXPECT_THROW(WordPattern(std::string(17'000, 'a'), "P"), UsageError);
}

TEST(WordPattern, KnowsLettersDigitsAndSpacesOfAllScripts) {
  EXPECT_THAT(words_of("Äpfel 日本語 ٣½"), ElementsAre("Äpfel", " 日本語", " ٣½"));
  EXPECT_THAT(words_of("a\u3000\u2003b"), ElementsAre("a", "\u3000", "\u2003", "b"));
  EXPECT_THAT(words_of("a\u0085 b"), ElementsAre("a", "\u0085", " b"));
  EXPECT_THAT(words_of("a\u180e b"), ElementsAre("a", "\u180e", " b"));
  EXPECT_THAT(words_of("1\u180e,"), ElementsAre("1", "\u180e,")) << "U+180E is not white space";
  EXPECT_THAT(words_of("1\x1c,"), ElementsAre("1", "\x1c,")) << "nor is U+001C";
}
