// A server in this process, on a grid of threads, and its clients.
#include <atomic>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/api.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/use/infer/evaluate.h"

#include "tests/app/serve/events.h"
#include "tests/app/serve/with_server.h"
#include "tests/support/http_client.h"
#include "tests/support/runs.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

std::vector<std::int32_t> tokens_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()),
          reinterpret_cast<const std::uint8_t*>(text.data()) + text.size()};
}

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// Sends raw bytes, reads so many, and hangs up.
void hang_up(int port, const std::string& request, std::size_t reads) {
  const RawConnection connection(port);
  connection.send(request);
  for (std::size_t got = 0; got < reads;) {
    const std::size_t count = connection.receive(reads - got).size();
    if (count == 0) break;
    got += count;
  }
}

/// The body of an answer whose pieces are taken with pauses.
std::string read_slowly(const Served& served, const json& body) {
  const RawConnection connection(served.port);
  connection.send(request_text("POST", "/v1/completions", body.dump(), {}));
  std::string bytes;
  for (std::string more; !(more = connection.receive(200)).empty();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    bytes += more;
  }
  return parse_answer(bytes).body;
}

std::string raw_post(const json& body) {
  return request_text("POST", "/v1/completions", body.dump(), {});
}

}  // namespace

TEST(Serve, ScoresWhatTheEvaluationHarnessSendsAsEvaluationDoesOnEveryGrid) {
  const std::vector<std::string> texts{"Where is it?", "ab", std::string(290, 'x') + "end"};
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    std::vector<SequenceScore> want;
    with_model(config_of(grid), [&](LoadedModel& model) {
      const auto scores =
          score(model,
                {.count = std::ssize(texts),
                 .at =
                     [&](std::int64_t n) {
                       const auto size = std::ssize(texts[n]);
                       return ScoredSequence{tokens_of(texts[n]), size - 1, size - 1};
                     }},
                {});
      if (model.grid().world().rank() == 0) want = scores;
    });
    with_server({.grid = grid}, [&](const Served& served) {
      json prompts;
      for (const std::string& text : texts) prompts.push_back(tokens_of(text));
      const json got = served.answer("/v1/completions", {{"model", "tiny"},
                                                         {"prompt", prompts},
                                                         {"temperature", 0},
                                                         {"max_tokens", 1},
                                                         {"logprobs", 1},
                                                         {"seed", 1234},
                                                         {"echo", true}});
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const json& choice = got["choices"][i];
        EXPECT_EQ(choice["index"], i);
        const json &values = choice["logprobs"]["token_logprobs"],
                   &likeliest = choice["logprobs"]["top_logprobs"];
        ASSERT_EQ(values.size(), texts[i].size() + 1);  // and the generated one
        EXPECT_TRUE(values[0].is_null());
        double nats = 0;
        std::int64_t greedy = 0;
        for (std::size_t t = 1; t < texts[i].size(); ++t) {
          nats -= values[t].get<double>();
          double most = -1e9;
          for (const auto& [token, value] : likeliest[t].items())
            most = std::max(most, value.get<double>());
          greedy += most == values[t];
        }
        EXPECT_NEAR(nats, want[i].nats, 1e-5 * static_cast<double>(want[i].targets));
        EXPECT_EQ(greedy, want[i].greedy);
      }
    });
  }
}

TEST(Serve, AStreamHasTheTextOfTheWholeAnswer) {
  with_server({.grid = {1, 1, 2, 1}}, [](const Served& served) {
    json request{{"prompt", {"one", "another"}}, {"max_tokens", 20}, {"seed", 7}, {"n", 2}};
    const json whole = served.answer("/v1/completions", request);
    ASSERT_EQ(whole["choices"].size(), 4U);
    EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]) << "copies differ";
    EXPECT_EQ(whole["usage"]["prompt_tokens"], 10);
    EXPECT_EQ(whole["usage"]["completion_tokens"], 80);
    request["stream"] = true;
    request["stream_options"] = {{"include_usage", true}};
    const Events events = events_of(served.post("/v1/completions", request).body);
    EXPECT_TRUE(events.done);
    for (const char* key : {"prompt_tokens", "completion_tokens", "total_tokens"})
      EXPECT_EQ(events.usage[key], whole["usage"][key]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(json(events.texts.at(i)), json::parse(whole["choices"][i]["text"].dump()));
      EXPECT_EQ(events.reasons.at(i), "length");
    }
  });
}

// The scores in a stream's events, put together, are those of the whole answer. The second request
// finds its prompt's keys and values computed, by passes of other sizes: hence the tolerance, which
// is many roundings of a log-probability below 10.
TEST(Serve, AStreamHasTheScoresOfTheWholeAnswer) {
  with_server({.grid = {1, 1, 2, 1}}, [](const Served& served) {
    const auto compare = [&](const char* path, json request, std::size_t scores_of_first) {
      request.update({{"max_tokens", 20}, {"seed", 7}});
      const json whole = served.answer(path, request);
      request["stream"] = true;
      const Events events = events_of(served.post(path, request).body);
      EXPECT_TRUE(events.done);
      for (const json& choice : whole["choices"]) {
        json scores;
        for (const json& event : events.all)
          for (const json& piece : event["choices"])
            if (piece["index"] == choice["index"] && piece["logprobs"].is_object())
              for (const auto& [name, values] : piece["logprobs"].items())
                for (const json& value : values) scores[name].push_back(value);
        if (choice["index"] == 0) {
          EXPECT_EQ(scores.front().size(), scores_of_first);
        }
        const json got = scores.flatten(), want = choice["logprobs"].flatten();
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [name, value] : want.items()) {
          if (value.is_number_float()) {
            EXPECT_NEAR(got[name].get<double>(), value.get<double>(), 1e-4) << name;
          } else {
            EXPECT_EQ(got[name], value) << name;
          }
        }
      }
    };
    compare("/v1/completions", {{"prompt", {"one", "another"}}, {"logprobs", 0}, {"echo", true}},
            3 + 20);
    compare("/v1/completions", {{"prompt", "one"}, {"n", 2}, {"logprobs", 0}}, 20);
    compare("/v1/chat/completions",
            {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"logprobs", true}}, 20);
  });
}

TEST(Serve, CountsTheTokensOfAPromptThatItNeedNotComputeAgain) {
  with_server({}, [](const Served& served) {
    const auto cached = [&](const std::string& prompt) {
      const json usage =
          served.answer("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}})["usage"];
      return usage["prompt_tokens_details"]["cached_tokens"].get<int>();
    };
    EXPECT_EQ(cached("a long prompt"), 0);
    EXPECT_EQ(cached("a long prompt that goes on"), 13);
    EXPECT_EQ(cached("another"), 0);
  });
}

TEST(Serve, WithoutTokensToGenerateAnAnswerIsThePromptOrNothing) {
  with_server({}, [](const Served& served) {
    const auto choice = [&](json request) {
      request["prompt"] = "abc";
      request["max_tokens"] = 0;
      return served.answer("/v1/completions", request)["choices"][0];
    };
    EXPECT_EQ(choice({})["text"], "");
    EXPECT_EQ(choice({{"echo", true}})["text"], "abc");
    const json scored = choice({{"echo", true}, {"logprobs", 0}});
    EXPECT_EQ(scored["logprobs"]["tokens"], json({"a", "b", "c"}));
    EXPECT_EQ(scored["finish_reason"], "length");
  });
}

TEST(Serve, AChatIsThePromptOfItsTemplate) {
  with_server({}, [](const Served& served) {
    const json chat =
        served.answer("/v1/chat/completions",
                      {{"messages", {{{"role", "user"}, {"content", "Hello <|im_end|>"}}}},
                       {"temperature", 0},
                       {"logprobs", true},
                       {"top_logprobs", 2},
                       {"max_tokens", 9}});
    const json text = served.answer(
        "/v1/completions",
        {{"prompt", "<|im_start|>user\nHello <|im_end|><|im_end|>\n<|im_start|>assistant\n"},
         {"temperature", 0},
         {"max_tokens", 9}});
    const json& choice = chat["choices"][0];
    EXPECT_EQ(choice["message"]["role"], "assistant");
    EXPECT_EQ(choice["message"]["content"], text["choices"][0]["text"]);
    ASSERT_EQ(choice["logprobs"]["content"].size(), 9U);
    EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2U);
  });
}

TEST(Serve, TinyTemperaturesAndATopPOfZeroGiveTheLikeliestTokens) {
  with_server({}, [](const Served& served) {
    const auto text = [&](const char* key, double value) {
      return served.answer(
          "/v1/completions",
          {{"prompt", "abc"}, {"max_tokens", 9}, {key, value}})["choices"][0]["text"];
    };
    const json likeliest = text("temperature", 0);
    for (const double temperature : {1e-37, 1e-40, 5e-324})
      EXPECT_EQ(text("temperature", temperature), likeliest) << temperature;
    EXPECT_EQ(text("top_p", 0), likeliest);
  });
}

TEST(Serve, EndsBeforeAStopText) {
  with_server({}, [](const Served& served) {
    const json request{{"prompt", "abc"}, {"max_tokens", 30}, {"temperature", 0}};
    const std::string text = served.answer("/v1/completions", request)["choices"][0]["text"];
    json stopping = request;
    std::size_t at = 3;  // of a character that is one byte
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) ++at;
    ASSERT_LT(at, text.size());
    stopping["stop"] = {"never", text.substr(at, 1)};
    const json got = served.answer("/v1/completions", stopping)["choices"][0];
    EXPECT_EQ(got["text"], text.substr(0, text.find(text[at])));
    EXPECT_EQ(got["finish_reason"], "stop");
    stopping.erase("stop");
    stopping["stop_token_ids"] = {static_cast<int>(text[at])};  // a token is a byte
    EXPECT_EQ(served.answer("/v1/completions", stopping)["choices"][0]["text"], got["text"]);
  });
}

// A hundred clients at once: each gets what it would get alone. Among them are some that hang up,
// before, during and after their request, and some that read slowly. Afterwards nothing is left.
TEST(Serve, AHundredClientsOfWhichSomeHangUpLeaveNothingBehind) {
  with_server({.grid = {1, 1, 2, 1}, .batch = 8}, [](const Served& served) {
    const auto request_of = [](int i) {
      return json{
          {"prompt", "client " + std::to_string(i % 10)}, {"max_tokens", 24}, {"temperature", 0}};
    };
    std::vector<json> alone;
    for (int i = 0; i < 10; ++i)
      alone.push_back(served.answer("/v1/completions", request_of(i))["choices"][0]["text"]);
    const std::size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");

    std::atomic<int> right = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < 100; ++i)
      clients.emplace_back([&, i] {
        json request = request_of(i);
        json endless = request;
        endless["stream"] = true;
        endless["max_tokens"] = kContext;
        const std::string raw = raw_post(endless);
        switch (i % 5) {
          case 0:
            return hang_up(served.port, raw.substr(0, raw.size() / 2), 0);
          case 1:
            return hang_up(served.port, raw, 0);
          case 2:
            return hang_up(served.port, raw, 400);
          case 3:
            request["stream"] = true;
            if (json(events_of(read_slowly(served, request)).texts[0]) == alone[i % 10]) ++right;
            return;
          default: {
            const auto result = served.post("/v1/completions", request);
            if (result.status != 200) {
              ADD_FAILURE() << "client " << i << ": " << result.head << result.body;
            } else if (json::parse(result.body)["choices"][0]["text"] == alone[i % 10]) {
              ++right;
            }
          }
        }
      });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(right, 40);

    // Those that hung up are dropped before their next pass, long before their last token.
    json health;
    for (int tries = 0; tries < 200; ++tries) {
      health = served.health();
      if (health["running"] == 0 && health["waiting"] == 0 && entries_of("/proc/self/fd") <= files)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(health["running"], 0);
    EXPECT_EQ(health["waiting"], 0);
    EXPECT_LE(entries_of("/proc/self/fd"), files);
    EXPECT_LE(entries_of("/proc/self/task"), threads);
    EXPECT_EQ(served.answer("/v1/completions", request_of(3))["choices"][0]["text"], alone[3]);
  });
}

TEST(Serve, RefusesWhatItCannotDoAndNamesTheKey) {
  with_server({.http = {.port = 0, .body_bytes = 2000}}, [](const Served& served) {
    const auto refusal = [&](const char* path, const json& body, int status) {
      const auto result = served.post(path, body);
      EXPECT_EQ(result.status, status) << body;
      const json error = json::parse(result.body)["error"];
      const std::string message = error["message"];
      if (error["param"].is_string()) {
        EXPECT_TRUE(message.starts_with(error["param"].get<std::string>() + ":")) << message;
      }
      return message;
    };
    const char *text = "/v1/completions", *chat = "/v1/chat/completions";
    EXPECT_THAT(refusal(text, "no object", 400), HasSubstr("not a JSON object"));
    EXPECT_THAT(refusal(text, json::object(), 400), HasSubstr("prompt: wanted a text"));
    EXPECT_THAT(refusal(text, {{"prompt", {1, 256}}}, 400), HasSubstr("tokens from 0 to 255"));
    EXPECT_THAT(refusal(text, {{"prompt", std::string(301, 'a')}}, 400),
                HasSubstr("301 tokens, but the context has only 300"));
    EXPECT_THAT(served.post(text, {{"prompt", std::string(301, 'a')}}).body,
                HasSubstr("\"code\":\"context_length_exceeded\""));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"max_tokens", -1}}, 400),
                HasSubstr("max_tokens: wanted a whole number from 0 to 4096, which is"));
    EXPECT_THAT(
        refusal(chat, {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 0}},
                400),
        HasSubstr("max_tokens: wanted a whole number from 1"));
    EXPECT_THAT(
        refusal(text, {{"prompt", "a"}, {"stream_options", {{"include_usage", "yes"}}}}, 400),
        HasSubstr("stream_options:"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"logprobs", true}}, 400), HasSubstr("logprobs:"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"best_of", 1}, {"n", 2}}, 400),
                HasSubstr("best_of: it is less than n, 2"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"best_of", 2}, {"stream", true}}, 400),
                HasSubstr("best_of: not supported in a stream"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"stop_token_ids", {256}}}, 400),
                HasSubstr("stop_token_ids: wanted tokens from 0 to 255, got 256"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"temperature", "hot"}}, 400),
                HasSubstr("temperature: wanted a number from 0 to 100"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"temperature", 100.5}}, 400),
                HasSubstr("temperature: wanted a number from 0 to 100"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"repetition_penalty", 0}}, 400),
                HasSubstr("repetition_penalty: wanted a number from 0.001 to 1000"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"n", 1000}}, 400), HasSubstr("n: wanted"));
    EXPECT_THAT(refusal(text, {{"prompt", "a"}, {"stop", ""}}, 400), HasSubstr("stop: wanted"));
    EXPECT_THAT(refusal(chat, {{"messages", "hi"}}, 400), HasSubstr("messages"));
    EXPECT_THAT(refusal(chat, {{"messages", json::array()}}, 400), HasSubstr("messages"));
    EXPECT_THAT(refusal(text, {{"prompt", std::string(3000, 'a')}}, 413), HasSubstr("too large"));
    EXPECT_THAT(refusal("/v2", json::object(), 404), HasSubstr("there is no POST /v2"));
    const HttpAnswer unknown = served.get("/v1/models/a");
    EXPECT_EQ(unknown.status, 404);
    EXPECT_THAT(unknown.body, HasSubstr("there is no model 'a'; the server has 'tiny (a+b)'"));
    EXPECT_THAT(unknown.body, HasSubstr("\"code\":\"model_not_found\""));
    const auto broken = http_post(served.port, text, "{\"prompt\": }");
    EXPECT_EQ(broken.status, 400);
    EXPECT_THAT(broken.body, HasSubstr("is not JSON: parse error at line 1, column 12"));
    const auto form = served.post(text, {{"prompt", "a"}}, {{"Content-Type", "text/plain"}});
    EXPECT_EQ(form.status, 415) << "what another page's form can send";
    EXPECT_EQ(served.get("/v1/models", {{"Host", "attacker.example"}}).status, 403);
  });
}

TEST(Serve, WantsTheTokenAndHasRoomForSoManyPrompts) {
  EXPECT_THAT([] { HttpServer({.host = "0.0.0.0"}); },
              ThrowsMessage<UsageError>(HasSubstr("set --token")));
  with_server({.http = {.port = 0, .token = "secret"}, .queue = 3}, [](const Served& served) {
    EXPECT_THAT([&] { HttpServer({.port = served.port}).start(); },
                ThrowsMessage<UsageError>(HasSubstr("another program has the port")));
    EXPECT_EQ(served.get("/v1/models").status, 401);
    EXPECT_EQ(served.get("/v1/models", {{"Authorization", "Bearer secreT"}}).status, 401);
    const HttpHeaders right{{"Authorization", "Bearer secret"}};
    EXPECT_EQ(served.get("/v1/models", right).status, 200);
    EXPECT_EQ(served.health()["status"], "ok") << "without a token";
    const json many{{"prompt", {"a", "b", "c", "d"}}, {"max_tokens", 1}};
    EXPECT_EQ(served.post("/v1/completions", many, right).status, 503);
    EXPECT_EQ(served.health()["waiting"], 0) << "all prompts of a request or none";
  });
}

TEST(Serve, DescribesItsModelAndTokenizer) {
  with_server({}, [](const Served& served) {
    const auto get = [&](const char* path) { return json::parse(served.get(path).body); };
    const json model = get("/v1/models")["data"][0];
    EXPECT_EQ(model["id"], "tiny (a+b)");
    EXPECT_TRUE(model["created"].is_number_integer());
    EXPECT_EQ(get("/v1/models/tiny%20(a+b)"), model);
    EXPECT_THAT(get("/tokenizer_info")["chat_template"], HasSubstr("<|im_start|>"));
    EXPECT_EQ(get("/tokenizer_info")["tokenizer"], "bytes");
    const json tokens = served.answer("/tokenize", {{"prompt", "h\u00e9"}});
    EXPECT_EQ(tokens["tokens"], json({0x68, 0xc3, 0xa9}));
    EXPECT_EQ(served.answer("/detokenize", tokens)["prompt"], "h\u00e9");
  });
}

TEST(Serve, ARequestChoosesAdaptersByTheNameOfItsModel) {
  with_server({.grid = {1, 1, 2, 1}, .adapters = {"polite", "terse"}}, [](const Served& served) {
    const json models = json::parse(served.get("/v1/models").body)["data"];
    ASSERT_EQ(models.size(), 3U);
    EXPECT_EQ(models[0].count("parent"), 0U);
    EXPECT_EQ(models[1]["id"], "polite");
    EXPECT_EQ(models[2]["parent"], "tiny (a+b)");
    EXPECT_EQ(json::parse(served.get("/v1/models/terse").body), models[2]);
    const auto answer = [&](const json& name) {
      json body{{"prompt", "a long prompt"}, {"max_tokens", 1}};
      if (!name.is_null()) body["model"] = name;
      return served.answer("/v1/completions", body);
    };
    // Keys and values of other adapters are not those of the prompt.
    const auto cached = [&](const json& name) {
      return answer(name)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
    };
    for (const json& name : {json("tiny (a+b)"), json("polite"), json("terse")}) {
      EXPECT_EQ(answer(name)["model"], name);
      EXPECT_EQ(cached(name), 12) << name;
    }
    EXPECT_EQ(answer(nullptr)["model"], "tiny (a+b)");
    const auto unknown = served.post("/v1/completions", {{"model", "rude"}, {"prompt", "a"}});
    EXPECT_EQ(unknown.status, 404);
    EXPECT_THAT(unknown.body,
                AllOf(HasSubstr("model_not_found"), HasSubstr("'tiny (a+b)', 'polite', 'terse'")));
    EXPECT_EQ(served.post("/v1/completions", {{"model", 3}, {"prompt", "a"}}).status, 400);
    EXPECT_EQ(served.get("/v1/models/rude").status, 404);
    const json hello{{"role", "user"}, {"content", "Hello"}};
    const json chat{{"model", "polite"}, {"messages", {hello}}};
    EXPECT_THAT(served.post("/v1/chat/completions", chat).body, HasSubstr("no chat template"));
  });
}

TEST(Serve, CountsItsWorkForPrometheus) {
  with_server({}, [](const Served& served) {
    served.answer("/v1/completions", {{"prompt", {"a", "b"}}, {"max_tokens", 3}});
    const HttpAnswer metrics = served.get("/metrics");
    EXPECT_THAT(metrics.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
    EXPECT_THAT(metrics.body,
                HasSubstr("# TYPE axonn_prompts_total counter\naxonn_prompts_total 2\n"));
    EXPECT_THAT(metrics.body, HasSubstr("\naxonn_generated_tokens_total 6\n"));
    EXPECT_THAT(metrics.body, HasSubstr("\naxonn_prompts_waiting 0\n"));
  });
}

TEST(Serve, StopsInTheMiddleOfAnswersAndSaysSo) {
  with_server({}, [](const Served& served) {
    HttpAnswer whole;
    std::thread waiting([&] {
      whole = served.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", kContext}});
    });
    std::thread stopping([&] {
      while (served.queue.load().running < 2) std::this_thread::yield();
      served.queue.close("closing time");
    });
    const auto result = served.post("/v1/completions",
                                    {{"prompt", "a"}, {"max_tokens", kContext}, {"stream", true}});
    stopping.join();
    waiting.join();
    EXPECT_EQ(whole.status, 503);
    EXPECT_THAT(whole.body, HasSubstr("closing time"));
    EXPECT_EQ(result.status, 200);
    EXPECT_THAT(result.body, HasSubstr("closing time"));
    EXPECT_THAT(result.body, Not(HasSubstr("[DONE]")));
    EXPECT_EQ(served.post("/v1/completions", {{"prompt", "a"}}).status, 503);
  });
}
