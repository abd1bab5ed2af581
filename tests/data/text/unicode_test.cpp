// Expected values are those of the tokenizers library 0.23.3.
#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/text/normal_form.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/data/text/word_pattern.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

std::vector<std::string> words_by(const std::string& pattern, std::string_view text) {
  const WordPattern compiled(pattern, "P");
  WordPattern::Matcher matcher(compiled);
  std::vector<std::string> words;
  for (; !text.empty(); text.remove_prefix(words.back().size()))
    words.emplace_back(text.substr(0, matcher.first_word(text)));
  return words;
}

std::string composed_form(std::string_view text) {
  std::string out;
  append_normal(text, NormalForm::nfc, out);
  return out;
}

std::size_t number_of(std::string_view property) {
  std::size_t count = 0;
  const CharacterSet set = characters_with(property).value();
  for (const auto& [first, last] : set) count += last - first + 1;
  return count;
}

}  // namespace

TEST(Unicode, LettersAndDigitsOfVersion16AreKnownToPatterns) {
  const std::string llama3 =
      R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+)";
  EXPECT_THAT(words_by(llama3, "a\U0003138f#include"), ElementsAre("a\U0003138f", "#include"));
  EXPECT_THAT(words_by(llama3, "a \U0001e030#include"),
              ElementsAre("a", " \U0001e030", "#include"));
  EXPECT_THAT(words_by(llama3, "\u1c8a#\U00010d40"), ElementsAre("\u1c8a", "#", "\U00010d40"));
  EXPECT_THAT(words_by(R"(\p{Lu}+|\P{Lu}+)", "\u1c89\u1c8a"), ElementsAre("\u1c89", "\u1c8a"));
  EXPECT_THAT(words_by(R"([\P{Lu}]+|\p{^Lu}+)", "\u1c89\u1c8a"), ElementsAre("\u1c89", "\u1c8a"));
  EXPECT_THAT(words_by(R"(\P{^L}+)", "\u1c89!"), ElementsAre("\u1c89", "!"));
  EXPECT_THAT(words_by(R"(\d+|\D+)", "1\U00010d40a"), ElementsAre("1\U00010d40", "a"));
}

TEST(Unicode, ACharacterThatChangedItsClassHasThatOfVersion16) {
  // U+1171E was Mn in version 14, and is Mc.
  EXPECT_THAT(words_by(R"(\p{Mc}+|\p{Mn}+)", "\U0001171e\u0300"),
              ElementsAre("\U0001171e", "\u0300"));
}

TEST(Unicode, AScriptIsThatOfTheCharacterAndNotItsExtensions) {
  // U+3001 is used with Han, and belongs to no script.
  EXPECT_THAT(words_by(R"(\p{Han}+)", "本\u3001本"), ElementsAre("本", "\u3001", "本"));
  EXPECT_EQ(number_of("Han"), 99'030U);
}

TEST(Unicode, ClassesHaveAsManyCharactersAsInVersion16) {
  const std::map<std::string, std::size_t> counts{{"L", 141'028}, {"N", 1'911}, {"M", 2'501},
                                                  {"Lu", 1'858},  {"Nd", 760},  {"Any", 1'114'112}};
  for (const auto& [name, count] : counts) EXPECT_EQ(number_of(name), count) << name;
  EXPECT_EQ(characters_with("old_hungarian"), characters_with("Old Hungarian"));
  EXPECT_FALSE(characters_with("Letters"));
}

TEST(Unicode, AnUnknownPropertyIsRefusedWithItsPlace) {
  for (const char* pattern : {R"(a\p{Alphabetic})", R"(a\p{L&})", R"(a\p{})"})
    EXPECT_THAT([&] { to_pcre2(pattern, "P"); }, ThrowsMessage<UsageError>(HasSubstr("P, at 1: ")))
        << pattern;
}

TEST(Unicode, SetsAndTheirComplementsShareNothing) {
  const CharacterSet letters = characters_with("L").value(), others = all_but(letters);
  EXPECT_EQ(difference(letters, others), letters);
  EXPECT_EQ(all_but(others), letters);
  EXPECT_EQ(difference({{1, 9}}, {{0, 1}, {3, 4}, {9, 12}}), (CharacterSet{{2, 2}, {5, 8}}));
}

TEST(Unicode, MarksNewerThanVersion9AreNotMovedByNfc) {
  EXPECT_EQ(composed_form("a\u0897\u0334"), "a\u0897\u0334") << "of version 16";
  EXPECT_EQ(composed_form("a\u07fd\u0334"), "a\u07fd\u0334") << "of version 11";
  EXPECT_EQ(composed_form("a\u08d4\u0334"), "a\u0334\u08d4") << "of version 9";
  EXPECT_EQ(composed_form("\U00011935\U00011930"), "\U00011935\U00011930") << "of version 13";
}

TEST(Unicode, NfcIsThatOfTheStandard) {
  const std::vector<std::pair<std::string, std::string>> forms{
      {"e\u0301", "\u00e9"},
      {"\u212b", "\u00c5"},
      {"\u2126", "\u03a9"},
      {"\u0958", "\u0915\u093c"},
      {"q\u0307\u0323", "q\u0323\u0307"},
      {"\u1e0b\u0323", "\u1e0d\u0307"},
      {"\u1112\u1161\u11ab", "\ud55c"},
      {"\ud558\u11ab", "\ud55c"},
      {"\ud55c\u11ab", "\ud55c\u11ab"},
      {"\u0344", "\u0308\u0301"},
      {"a\u0334\u0301\u0301b", "\u00e1\u0334\u0301b"},
      {"\u0b47\u0b3e", "\u0b4b"},
      {"\u0b47\u0300\u0b3e", "\u0b47\u0300\u0b3e"},
      {"\u2adc", "\u2add\u0338"},
      {"\U0001d15e", "\U0001d157\U0001d165"},
      {"\uf900", "\u8c48"}};
  for (const auto& [text, want] : forms)
    EXPECT_EQ(composed_form("." + text + "."), "." + want + ".");
  EXPECT_EQ(composed_form("\u0301a"), "\u0301a");
  EXPECT_TRUE(stays_normal("é", NormalForm::nfc) && stays_normal("\u0301", NormalForm::nfc) &&
              !stays_normal("\u212b", NormalForm::nfc));
  EXPECT_TRUE(begins_apart("é") && begins_apart("") && !begins_apart("\u0301"));
  EXPECT_FALSE(begins_apart("\u1161"));
}
