// What a server's requests say of the tokens that are drawn: settings of sampling, and forms of
// texts.
#include <algorithm>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

#include "tests/app/serve/events.h"
#include "tests/app/serve/with_server.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;

// Each by its definition, on grids that compute the same text.
TEST(Serve, HeedsBiasesPenaltiesAndTheLeastNumberOfTokensOnEveryGrid) {
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    with_server({.grid = grid}, [&](const Served& served) {
      const auto tokens = [&](json request) {
        request.update({{"prompt", "abc"}, {"max_tokens", 12}, {"logprobs", 0}});
        if (!request.contains("temperature")) request["temperature"] = 0;
        const json choice = served.answer("/v1/completions", request)["choices"][0];
        return choice["logprobs"]["tokens"].get<std::vector<std::string>>();
      };
      const std::vector<std::string> plain = tokens({});
      ASSERT_EQ(plain.size(), 12U);
      EXPECT_EQ(tokens({{"logit_bias", {{"65", 100}}}}), std::vector<std::string>(12, "A"));
      EXPECT_EQ(tokens({{"temperature", 2}, {"min_p", 1}}), plain);
      const auto penalised = tokens({{"logit_bias", {{"65", 20}}}, {"frequency_penalty", 2}});
      EXPECT_EQ(penalised.front(), "A");
      EXPECT_NE(penalised, std::vector<std::string>(12, "A"));
      const json ends{{"logit_bias", {{"65", 100}, {"66", 90}}}, {"stop_token_ids", {65}}};
      EXPECT_EQ(tokens(ends).size(), 0U);
      json later = ends;
      later["min_tokens"] = 5;
      EXPECT_EQ(tokens(later), std::vector<std::string>(5, "B"));
    });
  }
}

TEST(Serve, BestOfGivesTheTextsThatAreLikeliestByToken) {
  for (const GridShape& grid : {GridShape{}, {1, 1, 2, 1}})
    with_server({.grid = grid}, [&](const Served& served) {
      const json request{{"prompt", {"abc", "d"}}, {"max_tokens", 6}, {"seed", 4}};
      json all = request, best = request;
      all.update({{"n", 5}, {"logprobs", 0}});
      best.update({{"n", 2}, {"best_of", 5}});
      const json wanted = served.answer("/v1/completions", all);
      const json got = served.answer("/v1/completions", best);
      ASSERT_EQ(got["choices"].size(), 4U);
      EXPECT_EQ(got["usage"]["completion_tokens"], 60) << "all texts count";
      for (std::size_t prompt = 0; prompt < 2; ++prompt) {
        std::vector<std::pair<double, std::string>> texts;
        for (std::size_t i = 5 * prompt; i < 5 * prompt + 5; ++i) {
          const json& choice = wanted["choices"][i];
          double sum = 0;
          for (const double value : choice["logprobs"]["token_logprobs"]) sum += value;
          texts.emplace_back(-sum / choice["logprobs"]["tokens"].size(), choice["text"]);
        }
        std::ranges::sort(texts);
        for (std::size_t i = 0; i < 2; ++i) {
          const json& choice = got["choices"][2 * prompt + i];
          EXPECT_EQ(choice["index"], 2 * prompt + i);
          EXPECT_EQ(choice["text"], texts[i].second);
          EXPECT_TRUE(choice["logprobs"].is_null());
        }
      }
    });
}

TEST(Serve, RefusesSettingsOfSamplingOutOfTheirRange) {
  with_server({}, [](const Served& served) {
    const auto refusal = [&](const json& body) {
      const HttpAnswer answer = served.post("/v1/completions", body);
      EXPECT_EQ(answer.status, 400) << body;
      return json::parse(answer.body)["error"]["message"].get<std::string>();
    };
    EXPECT_THAT(refusal({{"prompt", "a"}, {"logit_bias", {{"256", 1}}}}),
                HasSubstr("logit_bias: wanted tokens from \"0\" to \"255\", got \"256\""));
    EXPECT_THAT(refusal({{"prompt", "a"}, {"logit_bias", {{"5x", 1}}}}), HasSubstr("got \"5x\""));
    EXPECT_THAT(refusal({{"prompt", "a"}, {"logit_bias", {{"5", 101}}}}),
                HasSubstr("logit_bias: wanted numbers from -100 to 100"));
    EXPECT_THAT(refusal({{"prompt", "a"}, {"presence_penalty", 2.5}}),
                HasSubstr("presence_penalty: wanted a number from -2 to 2"));
    EXPECT_THAT(refusal({{"prompt", "a"}, {"min_tokens", 20}}),
                HasSubstr("min_tokens: it is more than max_tokens, 16"));
  });
}

// An untrained model, so that nothing but the form leads to such texts. Prompts of different forms
// and of none run together.
TEST(Serve, ATextIsWhatTheRequestSaysItMustBeOnEveryGrid) {
  json likeliest;  // of one rank
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    with_server({.grid = grid, .batch = 2}, [&](const Served& served) {
      const auto choices = [&](json request) {
        request.update({{"prompt", {"a", "bcd", "efghi"}}, {"n", 2}, {"seed", 3}});
        request["max_tokens"] = 250;
        return served.answer("/v1/completions", request)["choices"];
      };
      std::thread other([&] { EXPECT_EQ(choices(json::object())[0]["finish_reason"], "length"); });
      for (const json& choice : choices({{"guided_choice", {"xyz", "abc", "ab"}}})) {
        EXPECT_THAT(choice["text"], testing::AnyOf("xyz", "abc", "ab"));
        EXPECT_EQ(choice["finish_reason"], "stop");
      }
      for (const json& choice : choices({{"guided_regex", "x(y|€){2,3}z"}}))
        EXPECT_THAT(choice["text"].get<std::string>(),
                    testing::MatchesRegex("x(y|\xe2\x82\xac)(y|\xe2\x82\xac)+z"));
      const json schema{
          {"type", "object"},
          {"properties",
           {{"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}}},
            {"town", {{"type", "string"}, {"maxLength", 8}}},
            {"tags", {{"type", "array"}, {"items", {{"enum", {"a", "b"}}}}, {"maxItems", 3}}}}},
          {"required", {"age", "town"}},
          {"additionalProperties", false}};
      const auto check = [&](const json& choice) {
        const json value = json::parse(choice["text"].get<std::string>());
        EXPECT_THAT(value["age"].get<int>(), testing::AllOf(testing::Ge(0), testing::Le(120)));
        EXPECT_LE(code_points(value["town"].get<std::string>()), 8);
        EXPECT_LE(value.size(), 2U + value.count("tags"));
        EXPECT_EQ(choice["finish_reason"], "stop");
      };
      for (const json& choice : choices({{"guided_json", schema}})) check(choice);
      for (const json& choice : choices({{"structured_outputs", {{"json", schema.dump()}}}}))
        check(choice);
      const json greedy = choices({{"json_schema", schema}, {"temperature", 0}});
      if (likeliest.is_null()) likeliest = greedy;
      EXPECT_EQ(greedy, likeliest);
      other.join();
    });
  }
}

TEST(Serve, AFormIsOfChatsAndStreamsTooAndMayBeCutOff) {
  with_server({}, [](const Served& served) {
    const json schema{
        {"type", "object"}, {"properties", {{"b", {{"type", "boolean"}}}}}, {"required", {"b"}}};
    json request{{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                 {"response_format",
                  {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}}},
                 {"stream", true}};
    const Events events = events_of(served.post("/v1/chat/completions", request).body);
    EXPECT_TRUE(json::parse(events.texts.at(0))["b"].is_boolean());
    EXPECT_EQ(events.reasons.at(0), "stop");
    request["stream"] = false;
    request["max_tokens"] = 3;  // {"b":true} has ten
    EXPECT_EQ(served.answer("/v1/chat/completions", request)["choices"][0]["finish_reason"],
              "length");
  });
}

// Each byte takes a token here.
TEST(Serve, AFormsTextEndsBeforeItsLimitIfThatIsPossible) {
  with_server({}, [](const Served& served) {
    for (const int most : {2, 3, 8, 30})
      for (int seed = 0; seed < 4; ++seed) {
        const json object = served.answer("/v1/completions",
                                          {{"prompt", {"a", std::string(kContext + 1 - most, 'b')}},
                                           {"max_tokens", seed % 2 == 0 ? most : 100},
                                           {"seed", seed},
                                           {"response_format", {{"type", "json_object"}}}});
        for (const json& choice : object["choices"]) {
          EXPECT_TRUE(json::parse(choice["text"].get<std::string>()).is_object()) << choice;
          EXPECT_EQ(choice["finish_reason"], "stop");
        }
        const json matched = served.answer("/v1/completions", {{"prompt", "a"},
                                                               {"max_tokens", most},
                                                               {"temperature", 0},
                                                               {"guided_regex", "xy*(z|end)"}});
        EXPECT_EQ(matched["choices"][0]["finish_reason"], "stop");
      }
  });
}

TEST(Serve, AToolIsCalledWhereItMustBeInTheFormatOfTheTemplate) {
  const json parameters{{"type", "object"},
                        {"properties", {{"town", {{"type", "string"}, {"maxLength", 4}}}}},
                        {"required", {"town"}}};
  const auto tool = [&](const char* name) {
    return json{{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
  };
  for (const char* format : {"<tool_call></tool_call>", "[TOOL_CALLS]", "[TOOL_CALLS][ARGS]",
                             "\"parameters\" ipython"}) {
    SCOPED_TRACE(format);
    const std::string chat = concat("{# ", format, " #}{{ messages[0].content }}");
    with_server({.chat_template = chat}, [&](const Served& served) {
      json request{{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                   {"tools", {tool("get_weather"), tool("get_time")}},
                   {"parallel_tool_calls", false},
                   {"temperature", 50},
                   {"tool_choice", "required"}};
      const auto name = [&](std::int64_t seed) {
        request["seed"] = seed;
        const json choice = served.answer("/v1/chat/completions", request)["choices"][0];
        EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
        const json call = choice["message"]["tool_calls"].at(0)["function"];
        EXPECT_TRUE(json::parse(call["arguments"].get<std::string>())["town"].is_string());
        return call["name"].get<std::string>();
      };
      std::set<std::string> names;
      for (int seed = 0; seed < 8; ++seed) names.insert(name(seed));
      EXPECT_THAT(names, testing::ElementsAre("get_time", "get_weather"));
      request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_time"}}}};
      for (int seed = 0; seed < 3; ++seed) EXPECT_EQ(name(seed), "get_time");
    });
  }
}
