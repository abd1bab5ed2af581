// Beam search by requests to a server, compared with the generator's.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/app/serve/events.h"
#include "tests/app/serve/with_server.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;

namespace {

const std::vector<std::string> kPrompts{"abc", "d"};

/// The texts of each prompt, the best first.
std::vector<std::string> searched(const GenerationOptions& wanted) {
  std::vector<std::string> texts;
  with_model(config_of({}), [&](LoadedModel& model) {
    const auto tokenizer = make_tokenizer("bytes");
    Generator generator(model, {.tokenizer = tokenizer.get()});
    std::vector<std::vector<std::int32_t>> prompts;
    for (const std::string& prompt : kPrompts) prompts.push_back(tokenizer->encode(prompt));
    for (const Generation& best : generator.generate(prompts, wanted)) {
      texts.push_back(best.text);
      for (const Generation& other : best.others) texts.push_back(other.text);
    }
  });
  return texts;
}

json shown(const std::vector<std::string>& texts) {
  json all = json::array();
  for (const std::string& text : texts)
    all.push_back(json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)));
  return all;
}

json texts_of(const json& answer) {
  json texts = json::array();
  for (const json& choice : answer["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    texts.push_back(choice["text"]);
  }
  return texts;
}

}  // namespace

TEST(ServeBeams, GiveTheTextsOfTheGeneratorOnEveryGrid) {
  const std::vector<std::int32_t> stops{10, 33, 77, 101, 150, 200, 211};
  const json plain = shown(searched({.max_tokens = 9, .beams = {.beams = 3, .returned = 3}}));
  const json longer = shown(searched({.max_tokens = 9,
                                      .beams = {.beams = 5,
                                                .returned = 2,
                                                .length_penalty = 2,
                                                .early_stopping = EarlyStopping::never},
                                      .stop_tokens = stops}));
  for (const GridShape& grid : {GridShape{}, {2, 1, 1, 1}, {1, 2, 2, 1}}) {
    SCOPED_TRACE(to_string(grid));
    with_server({.grid = grid, .batch = 6}, [&](const Served& served) {
      json request{{"prompt", kPrompts}, {"max_tokens", 9}, {"use_beam_search", true}, {"n", 3}};
      const json answer = served.answer("/v1/completions", request);
      EXPECT_EQ(texts_of(answer), plain);
      EXPECT_EQ(answer["usage"]["completion_tokens"], 54);
      request["stream"] = true;
      const Events events = events_of(served.post("/v1/completions", request).body);
      EXPECT_TRUE(events.done);
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(events.texts.at(i), plain[i]);
        EXPECT_EQ(events.reasons.at(i), "length");
      }
      request.update({{"stream", false},
                      {"n", 2},
                      {"best_of", 5},
                      {"length_penalty", 2},
                      {"early_stopping", "never"},
                      {"stop_token_ids", stops},
                      {"temperature", 0}});
      EXPECT_EQ(texts_of(served.answer("/v1/completions", request)), longer);
    });
  }
}

TEST(ServeBeams, AreInChatsWhoseTurnsEndWithTokensOrText) {
  with_server({.batch = 4}, [](const Served& served) {
    json request{{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                 {"max_tokens", 5},
                 {"use_beam_search", true},
                 {"n", 2}};
    for (const bool ignores : {false, true}) {
      request["ignore_eos"] = ignores;
      const json choices = served.answer("/v1/chat/completions", request)["choices"];
      ASSERT_EQ(choices.size(), 2U);
      EXPECT_NE(choices[0]["message"], choices[1]["message"]);
    }
  });
}

TEST(ServeBeams, HaveLogProbabilitiesStopsAndForms) {
  with_server({.grid = {2, 1, 1, 1}, .batch = 4}, [](const Served& served) {
    json request{{"prompt", "abc"}, {"max_tokens", 8}, {"use_beam_search", true},
                 {"n", 2},          {"best_of", 4},    {"logprobs", 2}};
    const json scored = served.answer("/v1/completions", request)["choices"];
    for (const json& choice : scored) {
      EXPECT_EQ(choice["logprobs"]["tokens"].size(), 8U);
      EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), 8U);
      EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), 8U);
    }
    request.update({{"guided_regex", "x[0-9]{3}y"}, {"logprobs", nullptr}});
    const json formed = served.answer("/v1/completions", request)["choices"];
    ASSERT_EQ(formed.size(), 2U);
    for (const json& choice : formed) {
      EXPECT_THAT(choice["text"].get<std::string>(), testing::MatchesRegex("x[0-9]{3}y"));
      EXPECT_EQ(choice["finish_reason"], "stop");
    }
    EXPECT_NE(formed[0]["text"], formed[1]["text"]);
    request["stop"] = "y";
    const json stopped = served.answer("/v1/completions", request)["choices"];
    for (const json& choice : stopped)
      EXPECT_THAT(choice["text"].get<std::string>(), testing::MatchesRegex("x[0-9]{3}"));
  });
}

TEST(ServeBeams, AreRefusedByTheNameOfWhatDoesNotFit) {
  with_server({.batch = 4}, [](const Served& served) {
    const auto refusal = [&](const json& more) {
      json body{{"prompt", "a"}, {"use_beam_search", true}, {"n", 2}};
      body.update(more);
      const HttpAnswer answer = served.post("/v1/completions", body);
      EXPECT_EQ(answer.status, 400) << body;
      return json::parse(answer.body)["error"]["message"].get<std::string>();
    };
    EXPECT_THAT(refusal({{"n", 1}}), HasSubstr("use_beam_search: it needs beams"));
    EXPECT_THAT(refusal({{"n", 5}}), HasSubstr("5 beams, but the server has room for 4"));
    EXPECT_THAT(refusal({{"temperature", 0.5}}), HasSubstr("temperature: a beam search draws"));
    EXPECT_THAT(refusal({{"top_k", 3}}), HasSubstr("top_k: a beam search draws"));
    EXPECT_THAT(refusal({{"logprobs", 1}, {"echo", true}}),
                HasSubstr("not supported with echo and logprobs"));
    EXPECT_THAT(refusal({{"stop_token_ids", std::vector<int>(255, 7)}}),
                HasSubstr("2 beams and 255 end tokens are more than"));
    EXPECT_THAT(refusal({{"max_tokens", 0}}), HasSubstr("max_tokens of 0"));
    EXPECT_THAT(refusal({{"early_stopping", "soon"}}), HasSubstr("early_stopping: wanted false"));
    EXPECT_THAT(refusal({{"use_beam_search", false}, {"length_penalty", 2}}),
                HasSubstr("length_penalty: it needs \"use_beam_search\": true"));
    EXPECT_THAT(refusal({{"use_beam_search", false}, {"early_stopping", true}}),
                HasSubstr("early_stopping: it needs"));
    EXPECT_EQ(served
                  .post("/v1/completions", {{"prompt", "a"},
                                            {"use_beam_search", false},
                                            {"length_penalty", 1.0},
                                            {"early_stopping", false}})
                  .status,
              200);
  });
}
