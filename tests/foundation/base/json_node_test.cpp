#include "axonn/foundation/base/json_node.h"

#include <array>
#include <string_view>

#include <gmock/gmock.h>

using namespace axonn;
using testing::HasSubstr;

namespace {

template <typename Function>
void expect_refused(const Function& function, const std::string& why) {
  EXPECT_THAT(function, testing::ThrowsMessage<UsageError>(HasSubstr(why)));
}

}  // namespace

TEST(JsonNode, RefusesWhatIsNotJsonWithTheLine) {
  expect_refused([] { JsonNode::parse("", "f"); }, "f, line 1, byte 1: this is not JSON");
  expect_refused([] { JsonNode::parse("[1,\n2", "f"); }, "f, line 2, byte 6: this is not JSON");
  expect_refused([] { JsonNode::parse("[1e999]", "f"); }, "this is not JSON");
}

TEST(JsonNode, RefusesAKeyThatOccursTwiceInAnObject) {
  EXPECT_NO_THROW(JsonNode::parse(R"([{"a": {"a": 1}, "b": 2}, {"a": 3}])", "f"));
  expect_refused([] { JsonNode::parse(R"({"a": {"b": 1, "c": {"b": 4}, "b": 2}})", "f"); },
                 "f: the key 'b' occurs twice");
}

TEST(JsonNode, RefusesDeeperNestingThanAnyPublishedFiles) {
  const auto nested = [](std::size_t depth) {
    return JsonNode::parse(std::string(depth, '[') + std::string(depth, ']'), "f");
  };
  EXPECT_NO_THROW(nested(32));
  expect_refused([&] { nested(33); }, "f: brackets nest deeper than 32");
}

TEST(JsonNode, NamesThePlaceAndTheValueOfAFault) {
  const JsonNode root = JsonNode::parse(R"({"a": {"b": [1, -2, "x"]}, "c": null})", "f"),
                 list = root["a"]["b"];
  EXPECT_EQ(root.members().size(), 2u);
  EXPECT_EQ(root.members()[0].second.location(), "f: a");
  EXPECT_EQ(list.items()[0].number(), 1);
  EXPECT_EQ(list.items()[2].text(), "x");
  EXPECT_TRUE(root["c"].is_null());
  EXPECT_TRUE(root["d"].is_null());
  EXPECT_TRUE(root["d"].flag_or(true));
  expect_refused([&] { list.items()[1].number(); },
                 "f: a.b[1]: wanted a number from 0 to 2147483647, got -2");
  expect_refused([&] { list.items()[2].flag_or(false); },
                 "f: a.b[2]: wanted true or false, got a string");
  expect_refused([&] { list["x"]; }, "f: a.b: wanted an object, got an array");
  expect_refused([&] { root["d"].text(); }, "f: d: wanted a string, got nothing");
  expect_refused([&] { root["c"].text(); }, "f: c: wanted a string, got null");
}

TEST(JsonNode, NamesTheMembersThatNobodyLookedUp) {
  const JsonNode root = JsonNode::parse(
      R"({"a": 1, "b": {"c": 2, "d": [3], "e": null}, "f": [{"g": 4, "h": 5}], "i": {"j": 6},
          "k": false, "l": "", "m": {}, "n": true, "o": 0})",
      "f");
  EXPECT_EQ(root.unread(), "") << "nobody reads the object by its keys";
  root["a"];
  root["b"]["c"];
  root["f"].items()[0]["g"];
  root["i"];
  constexpr std::array<std::string_view, 1> harmless = {"n"};
  EXPECT_EQ(root.unread(harmless), "b.d, f[0].h, o");
  root["b"].pass_over({"d"});
  root.pass_over({"o", "missing"});
  EXPECT_EQ(root.unread(), "f[0].h, n");
  EXPECT_EQ(root.members().size(), 9u);
  EXPECT_EQ(root.unread(), "f[0].h, n") << "a list of members looks none up";
}
