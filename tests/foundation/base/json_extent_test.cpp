#include "axonn/foundation/base/json_extent.h"

#include <string>

#include <gmock/gmock.h>

using namespace axonn;

TEST(JsonExtent, CountsBracketsAndCommasOutsideOfStrings) {
  const auto extent = [](std::string_view text) {
    const JsonExtent found = json_extent(text);
    return std::pair(found.depth, found.values);
  };
  EXPECT_EQ(extent(""), std::pair(0, std::int64_t{1}));
  EXPECT_EQ(extent("1"), std::pair(0, std::int64_t{1}));
  EXPECT_EQ(extent(R"({"a": [1, 2], "b": [[]]})"), std::pair(3, std::int64_t{7}));
  EXPECT_EQ(extent(R"(["[[[,,,", "\"[[,", "\\", [])"), std::pair(2, std::int64_t{6}));
  EXPECT_EQ(extent(R"(["[[)").first, 1) << "a string without an end";
  EXPECT_EQ(extent("]]]][["), std::pair(2, std::int64_t{3}));
  EXPECT_EQ(extent(std::string(100'000, '[')).first, 100'000);
  EXPECT_EQ(extent("\"\\"), std::pair(0, std::int64_t{1}));
}
