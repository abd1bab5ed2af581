#include "axonn/text/word_pattern.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/text/bpe/bpe_vocab.h"

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

TEST(WordPattern, KnowsLettersDigitsAndSpacesOfAllScripts) {
  EXPECT_THAT(words_of("Äpfel 日本語 ٣½"), ElementsAre("Äpfel", " 日本語", " ٣½"));
  EXPECT_THAT(words_of("a\u3000\u2003b"), ElementsAre("a", "\u3000", "\u2003", "b"));
  EXPECT_THAT(words_of("a\u0085 b"), ElementsAre("a", "\u0085", " b"));
  EXPECT_THAT(words_of("a\u180e b"), ElementsAre("a", "\u180e", " b"));
  EXPECT_THAT(words_of("1\u180e,"), ElementsAre("1", "\u180e,")) << "U+180E is not white space";
  EXPECT_THAT(words_of("1\x1c,"), ElementsAre("1", "\x1c,")) << "nor is U+001C";
}
