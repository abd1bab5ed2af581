// Regular expressions against the standard library's, for whole texts.
#include "axonn/data/grammar/regex.h"

#include <regex>

#include <gmock/gmock.h>

#include "axonn/data/grammar/automaton.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

Automaton automaton_of(std::string_view pattern, const RegexOptions& options = {}) {
  Rules rules;
  const std::size_t root = rules.declare();
  rules.set(root, regex(pattern, rules, options));
  return {rules, root};
}

/// All texts of up to `most` of these characters.
std::vector<std::string> all_texts(std::string_view characters, std::size_t most) {
  std::vector<std::string> texts{""};
  for (std::size_t begin = 0, length = 0; length < most; ++length) {
    const std::size_t end = texts.size();
    for (; begin < end; ++begin)
      for (const char c : characters) texts.push_back(texts[begin] + c);
  }
  return texts;
}

}  // namespace

TEST(Regex, MatchesWholeTextsAsTheStandardLibraryDoes) {
  for (const char* pattern : {"ab",           "a|b",     "a*",
                              "(a|b)*1",      "a+b?",    "(?:ab)+",
                              "[ab]{2,3}",    "a{2}",    "a{1,}",
                              "[^a]",         ".",       "(a*)*",
                              "(a|a1)(b|1b)", "a*?b",    "",
                              "(|a)b",        "[a-c1]+", "\\d\\w",
                              "\\D",          "[a-]1",   "((a|b)1?){1,2}",
                              "(a{0,2}){2}",  "[]a]",    "a|",
                              "[^\\w]",       "\\S\\s"}) {
    const Automaton automaton = automaton_of(pattern);
    // ECMAScript reads "[]a]" in another way than everything else.
    const std::regex want(std::string_view(pattern) == "[]a]" ? "[\\]a]" : pattern);
    for (const std::string& text : all_texts("ab1- ", 5))
      ASSERT_EQ(automaton.accepts(text), std::regex_match(text, want)) << pattern << ": " << text;
  }
}

TEST(Regex, SearchesWhereItIsNotAnchored) {
  for (const char* pattern : {"ab", "^a", "b$", "^a|b", "^ab$", "a1|^b$"}) {
    const Automaton automaton = automaton_of(pattern, {.searches = true});
    const std::regex want(pattern);
    for (const std::string& text : all_texts("ab1", 5))
      ASSERT_EQ(automaton.accepts(text), std::regex_search(text, want)) << pattern << ": " << text;
  }
}

TEST(Regex, CharactersAreThoseOfUtf8) {
  EXPECT_TRUE(automaton_of("[é-ü]{2}").accepts("éü"));
  EXPECT_FALSE(automaton_of("[é-ü]").accepts("e"));
  EXPECT_TRUE(automaton_of(".").accepts("😀"));
  EXPECT_FALSE(automaton_of(".").accepts("\xf0\x9f\x98"));
  EXPECT_FALSE(automaton_of(".").accepts("\xed\xa0\x80")) << "a surrogate";
  EXPECT_TRUE(automaton_of("\\u20ac\\x41").accepts("€A"));
  // Every code point, encoded, is in exactly one of two classes.
  const Automaton low = automaton_of("[\\x00-\\u0fff]"), high = automaton_of("[^\\x00-\\u0fff]");
  for (const char* text :
       {"a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xe0\xbf\xbf", "\xe1\x80\x80",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_NE(low.accepts(text), high.accepts(text)) << text;
}

TEST(Regex, NamesWhatItDoesNotSupport) {
  const auto refusal = [](const char* pattern) {
    try {
      automaton_of(pattern);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("(?=a)"), HasSubstr("lookaround and flags, (?=a"));
  EXPECT_THAT(refusal("(?i)a"), HasSubstr("flags"));
  EXPECT_THAT(refusal("(?<!a)b"), HasSubstr("lookaround"));
  EXPECT_THAT(refusal("a\\b"), HasSubstr("\\b is not supported"));
  EXPECT_THAT(refusal("(a)\\1"), HasSubstr("\\1 is not supported"));
  EXPECT_THAT(refusal("\\p{L}"), HasSubstr("\\p is not supported"));
  EXPECT_THAT(refusal("a^b"), HasSubstr("ends of the pattern"));
  EXPECT_THAT(refusal("(a"), HasSubstr("a ( without its )"));
  EXPECT_THAT(refusal("a)"), HasSubstr("a ) without its ("));
  EXPECT_THAT(refusal("[a"), HasSubstr("[ without its ]"));
  EXPECT_THAT(refusal("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(refusal("a**"), HasSubstr("repetition of a repetition"));
  EXPECT_THAT(refusal("a{2,1}"), HasSubstr("ends swapped"));
  EXPECT_THAT(refusal("[z-a]"), HasSubstr("ends swapped"));
  EXPECT_THAT(refusal("a{"), HasSubstr("wanted a number"));
  EXPECT_THAT(refusal("\\"), HasSubstr("ends too early"));
  EXPECT_THAT(refusal("\xff"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("[^\\x00-\\U"), HasSubstr("\\U is not"));
}

TEST(Regex, IsBounded) {
  EXPECT_THAT([] { automaton_of("a{1001}"); }, ThrowsMessage<UsageError>(HasSubstr("1000")));
  EXPECT_THAT([] { automaton_of("(a{1000}){1000}"); },
              ThrowsMessage<UsageError>(HasSubstr("too large")));
  EXPECT_THAT([] { automaton_of("((((a{1,1000}){1,1000}){1,1000}){1,1000})"); },
              ThrowsMessage<UsageError>(HasSubstr("too large")));
  EXPECT_THAT([] { automaton_of(std::string(1000, '(')); },
              ThrowsMessage<UsageError>(HasSubstr("nest deeper")));
  EXPECT_TRUE(automaton_of(".{0,1000}").accepts(std::string(1000, 'a')));
  EXPECT_FALSE(automaton_of(".{0,1000}").accepts(std::string(1001, 'a')));
}
