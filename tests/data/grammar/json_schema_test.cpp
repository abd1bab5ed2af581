// JSON that a schema allows, and only that.
#include "axonn/data/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/data/grammar/automaton.h"
#include "axonn/data/grammar/json_values.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using nlohmann::json;
using testing::HasSubstr;

namespace {

Automaton schema_automaton(const std::string& schema) {
  Rules rules;
  const std::size_t root = rules.declare();
  rules.set(root, json_schema(schema, rules));
  return {rules, root};
}

struct SchemaCase {
  const char* schema;
  std::vector<std::string> fit, others;
};

std::string schema_refusal(const std::string& schema) {
  try {
    schema_automaton(schema);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// By schema: what fits, and what does not.
const SchemaCase kCases[] = {
    {"true",
     {"1", "-0.5e-3", "\"a\\n\\u00e9\\\"\"", "null", "[]", "[ 1, {\"a\": [true,false]} ]", "{}",
      "{\n  \"a\": 1\n}", "\"é😀\""},
     {"", "01", "1.", "+1", "\"a", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "[1,]", "{a:1}", "[1 2]",
      "nul", "1 ", " 1", "\"\xff\"", "{\"a\" : 1}"}},
    {R"({"type":"object"})", {"{}", "{\"a\":1}"}, {"[]", "1", "null"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {"\"ab\"", "\"é€😀\"", "\"\\n\\\"\""},
     {"\"a\"", "\"abcd\"", "ab"}},
    {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"null"},
         "c":{"const":"x"}},"required":["a"],"additionalProperties":false})",
     {"{\"a\":null}", "{\"b\":3,\"a\":null}", "{\"a\":null,\"c\":\"x\"}",
      "{ \"b\": -3, \"a\": null, \"c\": \"x\" }"},
     {"{}", "{\"b\":3}", "{\"a\":null,\"b\":3}", "{\"a\":null,}", "{\"a\":null,\"d\":1}",
      "{,\"a\":null}", "{\"b\":3\"a\":null}"}},
    {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
     {"{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null, \"b\":null}"},
     {"{\"b\":null,\"a\":null}", "{\"a\":null,\"a\":null}"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":null}"}},
    {R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {"{\"a\":1}"}},
    {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3})",
     {"[true]", "[true, false,true]"},
     {"[]", "[true,true,true,true]", "[1]"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":false})",
     {"[1,null]", "[ 1, null ]"},
     {"[1]", "[null,1]", "[1,null,1]"}},
    {R"({"enum":["a","ab",3,null,{"x":[1]}]})",
     {"\"a\"", "\"ab\"", "3", "null", "{\"x\":[1]}"},
     {"\"b\"", "\"abc\"", "33"}},
    {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {"\"a\""}},
    {R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"}},
    {R"({"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[
         {"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"]}},"$ref":"#/$defs/node"})",
     {"{\"next\":null}", "{\"next\":{\"next\":{\"next\":null}}}"},
     {"{}", "{\"next\":1}", "{\"next\":{\"next\":null}"}},
    {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
    {R"({"type":"string","pattern":"^a\"[b\\\\]$"})",
     {"\"a\\\"b\"", "\"a\\\"\\\\\""},
     {"\"a\"b\""}},
    {R"({"type":"string","pattern":"b"})", {"\"b\"", "\"ab\\n\""}, {"\"a\""}},
    {R"({"type":"string","format":"date"})", {"\"2024-02-28\""}, {"\"2024-13-01\""}},
    {R"({"type":"string","format":"date-time"})",
     {"\"2024-02-28T23:59:01.5Z\"", "\"2024-02-28T00:00:00+01:00\""},
     {"\"2024-02-28T24:00:00Z\"", "\"2024-02-28T00:00:00\""}},
    {R"({"type":"string","format":"ipv4"})", {"\"255.0.10.9\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
    {R"({"type":"string","format":"email"})", {"\"a.b@c.de\""}, {"\"a@b\"", "\"@c.de\""}},
    {R"({"type":"string","format":"uuid"})",
     {"\"01234567-89ab-cdef-0123-456789abcdef\""},
     {"\"01234567\""}},
    {R"({"properties":{"a":{"type":"null"}}})", {"{\"a\":null}"}, {"1"}},
    {R"({"description":"anything","title":"x"})", {"1", "{}"}, {"x"}},
};

}  // namespace

TEST(JsonSchema, AllowsWhatFitsAndNothingElse) {
  ASSERT_GT(std::size(kCases), 0U);
  for (const SchemaCase& one : kCases) {
    ASSERT_FALSE(one.fit.empty() || one.others.empty()) << one.schema;
    const Automaton automaton = schema_automaton(one.schema);
    for (const std::string& text : one.fit) {
      EXPECT_TRUE(automaton.accepts(text)) << one.schema << ": " << text;
      EXPECT_FALSE(json::parse(text, nullptr, false).is_discarded()) << text;
    }
    for (const std::string& text : one.others)
      EXPECT_FALSE(automaton.accepts(text)) << one.schema << ": " << text;
  }
}

TEST(JsonSchema, WholeNumbersKeepTheirBounds) {
  const std::pair<int, int> bounds[] = {{0, 0},    {0, 9},     {1, 1},    {3, 17},    {0, 120},
                                        {95, 105}, {-5, 5},    {-20, -3}, {-105, 7},  {-1, 0},
                                        {99, 100}, {100, 999}, {7, 1000}, {-200, 200}};
  for (const auto& [least, most] : bounds) {
    const Automaton both = schema_automaton(
                        json{{"type", "integer"}, {"minimum", least}, {"maximum", most}}.dump()),
                    low = schema_automaton(
                        json{{"type", "integer"}, {"exclusiveMinimum", least}}.dump()),
                    high = schema_automaton(
                        json{{"type", "integer"}, {"exclusiveMaximum", most}}.dump());
    for (int i = -1200; i <= 1200; ++i) {
      const std::string text = std::to_string(i);
      ASSERT_EQ(both.accepts(text), i >= least && i <= most) << least << ' ' << most << ' ' << i;
      ASSERT_EQ(low.accepts(text), i > least) << least << ' ' << i;
      ASSERT_EQ(high.accepts(text), i < most) << most << ' ' << i;
    }
    for (const char* text : {"00", "01", "-", "1.0", "--1"})
      EXPECT_FALSE(both.accepts(text)) << text;
  }
}

TEST(JsonSchema, NumbersWithFractionsKeepTheirBounds) {
  const std::pair<int, int> bounds[] = {{0, 1}, {-1, 1}, {2, 12}, {-12, -2}, {0, 0}, {-3, 0}};
  for (const auto& [least, most] : bounds)
    for (const bool open : {false, true}) {
      if (open && least == most) continue;
      const Automaton automaton = schema_automaton(json{
          {"type", "number"},
          {open ? "exclusiveMinimum" : "minimum", least},
          {open ? "exclusiveMaximum" : "maximum",
           most}}.dump());
      for (int i = -1400; i <= 1400; ++i) {
        const double value = i / 100.0;
        std::string text = json(value).dump();
        const bool fits = open ? value > least && value < most : value >= least && value <= most;
        ASSERT_EQ(automaton.accepts(text), fits) << least << ' ' << most << ' ' << open << text;
      }
      EXPECT_EQ(automaton.accepts("0"), open ? least < 0 && most > 0 : least <= 0 && most >= 0);
    }
}

TEST(JsonSchema, NamesTheKeywordThatItDoesNotSupport) {
  EXPECT_THAT(schema_refusal(R"({"type":"array","uniqueItems":true})"),
              HasSubstr("at #: the keyword 'uniqueItems' is not supported"));
  EXPECT_THAT(schema_refusal(R"({"properties":{"a":{"not":{}}}})"),
              HasSubstr("at #/properties/a: the keyword 'not' is not supported"));
  EXPECT_THAT(schema_refusal(R"({"anyOf":[{}],"properties":{}})"),
              HasSubstr("properties beside anyOf is not supported"));
  EXPECT_THAT(schema_refusal(R"({"allOf":[{},{}]})"), HasSubstr("allOf of several"));
  EXPECT_THAT(schema_refusal(R"({"$ref":"http://a/b"})"), HasSubstr("which begin with #"));
  EXPECT_THAT(schema_refusal(R"({"$ref":"#/$defs/x"})"), HasSubstr("there is no #/$defs/x"));
  EXPECT_THAT(schema_refusal(R"({"$ref":"#"})"), HasSubstr("no text fits"));
  EXPECT_THAT(schema_refusal(R"({"type":"text"})"), HasSubstr("type: wanted object"));
  EXPECT_THAT(schema_refusal(R"({"type":"string","format":"uri"})"),
              HasSubstr("format: supported"));
  EXPECT_THAT(schema_refusal(R"x({"type":"string","pattern":"(?=a)"})x"), HasSubstr("pattern: "));
  EXPECT_THAT(schema_refusal(R"({"type":"string","pattern":"a","maxLength":3})"),
              HasSubstr("at a time"));
  EXPECT_THAT(schema_refusal(R"({"type":"integer","minimum":3,"maximum":2})"),
              HasSubstr("no number"));
  EXPECT_THAT(schema_refusal(R"({"type":"number","minimum":0.5})"), HasSubstr("whole bounds"));
  EXPECT_THAT(schema_refusal(R"({"enum":[]})"), HasSubstr("no value"));
  EXPECT_THAT(schema_refusal(R"({"required":["a"],"type":"object"})"),
              HasSubstr("not in properties"));
  EXPECT_THAT(schema_refusal("false"), HasSubstr("wanted an object"));
  EXPECT_THAT(schema_refusal("[]"), HasSubstr("wanted an object"));
  EXPECT_THAT(schema_refusal(R"({"type":"string","minLength":-1})"),
              HasSubstr("minLength: wanted"));
  const json large{
      {"type", "array"}, {"minItems", 8000}, {"items", {{"type", "string"}, {"minLength", 8000}}}};
  EXPECT_THAT(schema_refusal(large.dump()), HasSubstr("too large"));
}

TEST(JsonSchema, ChainsOfReferencesAreBounded) {
  json schema{{"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 500; ++i)
    schema["$defs"]["d" + std::to_string(i)] = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
  schema["$defs"]["d500"] = {{"type", "null"}};
  EXPECT_THAT(schema_refusal(schema.dump()), HasSubstr("references nest deeper than 64"));
}
