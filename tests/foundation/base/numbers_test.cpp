#include "axonn/foundation/base/numbers.h"

#include <gtest/gtest.h>

using namespace axonn;

TEST(ParseInteger, TakesDigitsWithSeparatorsAndNothingElse) {
  EXPECT_EQ(parse_integer("1_000"), 1000);
  EXPECT_EQ(parse_integer("-7"), -7);
  EXPECT_EQ(parse_integer("+7"), 7);
  for (const char* text : {"", "1.0", "1e3", "ten", "_1", "1_", "1__0", " 1", "1 ", "0x10", "+-7",
                           "9223372036854775808"})
    EXPECT_FALSE(parse_integer(text)) << text;
}

TEST(ParseReal, TakesExponentsAndRefusesTrailingText) {
  EXPECT_EQ(parse_real("1e-3"), 1e-3);
  EXPECT_EQ(parse_real("2"), 2.0);
  for (const char* text : {"", "1e", "0.1x", "1,5"}) EXPECT_FALSE(parse_real(text)) << text;
}

TEST(ParseBytes, TakesUnitsOfPowersOf1024And1000) {
  EXPECT_EQ(parse_bytes("1500"), 1500);
  EXPECT_EQ(parse_bytes("64KiB"), 65536);
  EXPECT_EQ(parse_bytes("1.5 MB"), 1'500'000);
  EXPECT_EQ(parse_bytes("2kB"), 2000);
  EXPECT_EQ(parse_bytes("3B"), 3);
  EXPECT_EQ(parse_bytes("1TiB"), std::int64_t{1} << 40);
  for (const char* text : {"", "MB", "4XB", "4K", "4KiBB", "4iB", "-4MB", "1e30TB", "9e9TB"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}
