#include "axonn/foundation/base/utf8.h"

#include <gmock/gmock.h>

using namespace axonn;

TEST(Utf8, TheValidPrefixEndsBeforeOverlongFormsSurrogatesAndTooLargeCodes) {
  const std::string good = "aé日😀 and eight more ASCII";
  EXPECT_EQ(valid_utf8_prefix(good), good.size());
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
        "\xe6\x97"
        "x",
        "\xf0\x9f\x98"}) {
    EXPECT_EQ(valid_utf8_prefix(good + bad + good), good.size()) << testing::PrintToString(bad);
    EXPECT_EQ(valid_utf8_prefix(bad), 0u);
  }
  for (const char* edge : {"\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(valid_utf8_prefix(edge), std::string(edge).size()) << testing::PrintToString(edge);
}

TEST(Utf8, OnlyACharacterThatCanBeCompletedIsAnIncompleteSuffix) {
  const std::string smile = "😀";
  for (std::size_t bytes = 1; bytes < 4; ++bytes)
    EXPECT_EQ(incomplete_utf8_suffix("ab" + smile.substr(0, bytes)), bytes);
  EXPECT_EQ(incomplete_utf8_suffix("ab" + smile), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("ab\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("ab\xe0\x80"), 0u);  // overlong with any continuation
  EXPECT_EQ(incomplete_utf8_suffix(""), 0u);
}

TEST(Utf8, CodePointsOfAllLengths) {
  EXPECT_EQ(code_point("ab"), U'a');
  EXPECT_EQ(code_point("\xc3\xa9x"), U'\u00e9');
  EXPECT_EQ(code_point("\xe6\xbc\xa2"), U'\u6f22');
  EXPECT_EQ(code_point("\xf0\x9f\x98\x80"), U'\U0001f600');
  for (const char* bad : {"\xff", "\xc3", "\xed\xa0\x80"}) EXPECT_EQ(code_point(bad), 0xfffdu);
  EXPECT_EQ(code_points("a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80"), 4);
}

TEST(Utf8, PrintableTextIsOneLineOfValidUtf8) {
  EXPECT_EQ(printable("a\n\tb\x01\x7f"
                      "é\xff."),
            "a\\n\\tb\\x01\\x7fé\uFFFD.");
  EXPECT_EQ(escaped("a\n\\n\\"), R"(a\n\\n\\)");
}

TEST(Utf8, HarmlessTextCannotCommandATerminal) {
  EXPECT_EQ(harmless("\rtwo\tlines\n\x1b[K"), "\rtwo\tlines\n\x1b[K") << "what we print ourselves";
  EXPECT_EQ(harmless("\x1b]0;title\x07 \x1b[31mred \xc2\x9b 2J \b\xff"),
            "\\x1b]0;title\\x07 \\x1b[31mred \\x9b 2J \\x08\uFFFD");
}

TEST(Utf8, EastAsianCharactersTakeTwoColumnsAndCombiningMarksNone) {
  EXPECT_EQ(utf8_columns("a\xe6\xbc\xa2"
                         "e\xcc\x81"),
            4);
  EXPECT_EQ(utf8_columns("\xf0\x9f\x98\x80\xff"), 3) << "an invalid byte takes one";
}

TEST(Utf8, ATextThatIsTooWideIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(shortened("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 7),
            "\xe6\xbc\xa2\xe6\xbc\xa2...");
}

TEST(Utf8, OfACodePointOfEachLengthIsReadBack) {
  for (const char32_t c :
       {U'\0', U'\x7f', U'\x80', U'\u07ff', U'\u0800', U'\uffff', U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    append_utf8(c, text);
    EXPECT_EQ(utf8_front(text).bytes, text.size());
    EXPECT_EQ(code_point(text), c);
  }
}

TEST(Utf8, OnlyLettersOfAsciiHaveALowerCaseHere) {
  EXPECT_EQ(lower_ascii("AZ@[az\xc3\x84"), "az@[az\xc3\x84");
}
