// POST /v1/responses: the same request as a chat, and an answer of items and typed events.
#include <gmock/gmock.h>

#include "tests/app/serve/events.h"
#include "tests/app/serve/scripted_server.h"
#include "tests/app/serve/with_server.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr const char* kResponses = "/v1/responses";

const json kWeather = {
    {"type", "function"}, {"name", "weather"}, {"parameters", {{"type", "object"}}}};

/// Log-probabilities of the same tokens, which a prompt that is kept may change by rounding.
void expect_like(const json& got, const json& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]["bytes"], wanted[i]["bytes"]);
    EXPECT_NEAR(got[i]["logprob"], wanted[i]["logprob"], 1e-5);
    if (wanted[i].contains("top_logprobs"))
      expect_like(got[i]["top_logprobs"], wanted[i]["top_logprobs"]);
  }
}

json response_of(const ScriptedServer& server, const json& request) {
  return json::parse(server.post(kResponses, request).body);
}

}  // namespace

TEST(Responses, AreTheTextOfTheSameChat) {
  with_server({}, [](const Served& served) {
    const json chat = served.answer(
        "/v1/chat/completions",
        {{"messages",
          {{{"role", "system"}, {"content", "Be short."}}, {{"role", "user"}, {"content", "Hi"}}}},
         {"temperature", 0},
         {"max_tokens", 9}});
    json request{{"input", "Hi"},    {"instructions", "Be short."}, {"max_output_tokens", 9},
                 {"temperature", 0}, {"metadata", {{"a", "b"}}},    {"store", true}};
    const json response = served.answer(kResponses, request);
    EXPECT_EQ(response["object"], "response");
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(response["store"], false);
    EXPECT_EQ(response["metadata"], request["metadata"]);
    EXPECT_EQ(response["temperature"], 0);
    ASSERT_EQ(response["output"].size(), 1U);
    const json& item = response["output"][0];
    EXPECT_EQ(item["type"], "message");
    EXPECT_EQ(item["status"], "incomplete");
    EXPECT_EQ(item["content"][0]["type"], "output_text");
    EXPECT_EQ(item["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    EXPECT_EQ(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    EXPECT_EQ(response["usage"]["output_tokens"], 9);
    EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);

    request["stream"] = true;
    const auto events = typed_events(served.post(kResponses, request).body);
    EXPECT_THAT(
        types_of(events),
        ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                    "response.content_part.added", "response.output_text.delta",
                    "response.output_text.done", "response.content_part.done",
                    "response.output_item.done", "response.incomplete"));
    std::string text;
    for (const json& event : events)
      if (event["type"] == "response.output_text.delta") text += event["delta"];
    EXPECT_EQ(text, item["content"][0]["text"]);
    json whole = events.back()["response"];
    EXPECT_EQ(whole["output"][0]["content"], item["content"]);
    EXPECT_EQ(whole["usage"]["total_tokens"], response["usage"]["total_tokens"]);
  });
}

TEST(Responses, HaveThoughtsTextAndCallsAsItems) {
  const ScriptedServer server(
      template_file("chatml_tools") + "{# </think> #}",
      "<think>Hm.</think>I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"a\": 1}}\n"
      "</tool_call>");
  json request{{"input", "Weather?"}, {"tools", json::array({kWeather})}};
  const json response = response_of(server, request);
  EXPECT_THAT(server.prompt(), HasSubstr(R"({"type": "function", "function": {"name": "weather")"));
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["tools"], request["tools"]);
  const json& items = response["output"];
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0]["type"], "reasoning");
  EXPECT_EQ(items[0]["content"][0]["text"], "Hm.");
  EXPECT_EQ(items[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(items[2]["type"], "function_call");
  EXPECT_EQ(items[2]["name"], "weather");
  EXPECT_EQ(items[2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 3);

  request["stream"] = true;
  const auto events = typed_events(server.post(kResponses, request).body);
  EXPECT_THAT(
      types_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(events.back()["response"]["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(events[events.size() - 2]["output_index"], 2);

  // The items, sent again, are one turn of the assistant.
  json input{{{"role", "user"}, {"content", "Weather?"}}};
  for (const json& item : items) input.push_back(item);
  input.push_back(
      {{"type", "function_call_output"}, {"call_id", items[2]["call_id"]}, {"output", "sunny"}});
  request["stream"] = false;
  request["input"] = input;
  response_of(server, request);
  EXPECT_THAT(server.prompt(),
              HasSubstr("<|im_start|>user\nWeather?<|im_end|>\n"
                        "<|im_start|>assistant\nI look.\n<tool_call>\n{\"name\": \"weather\", "
                        "\"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n"
                        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>"));
}

TEST(Responses, TakeTheirFormFromTextAndToolChoice) {
  with_server({}, [](const Served& served) {
    const json format{{"type", "json_schema"},
                      {"name", "answer"},
                      {"schema", {{"enum", {"a", "b"}}}},
                      {"strict", true}};
    const json response = served.answer(
        kResponses, {{"input", "Hi"}, {"text", {{"format", format}}}, {"max_output_tokens", 9}});
    const std::string text = response["output"][0]["content"][0]["text"];
    EXPECT_TRUE(text == "\"a\"" || text == "\"b\"") << text;
    EXPECT_EQ(response["text"]["format"], format);
  });
  const std::string calls = "{{ messages[0].content }}{# <tool_call> </tool_call> #}";
  with_server({.chat_template = calls}, [](const Served& served) {
    const json response =
        served.answer(kResponses, {{"input", "Hi"},
                                   {"tools", json::array({kWeather})},
                                   {"tool_choice", {{"type", "function"}, {"name", "weather"}}},
                                   {"max_output_tokens", 200}});
    EXPECT_EQ(response["output"][0]["type"], "function_call");
    EXPECT_EQ(response["output"][0]["name"], "weather");
  });
}

TEST(Responses, HaveTheLogProbabilitiesOfTheSameChat) {
  with_server({}, [](const Served& served) {
    const json chat = served.answer("/v1/chat/completions",
                                    {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                     {"temperature", 0},
                                     {"max_tokens", 9},
                                     {"logprobs", true},
                                     {"top_logprobs", 2}});
    const json& wanted = chat["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(wanted.size(), 9U);
    json request{{"input", "Hi"},
                 {"max_output_tokens", 9},
                 {"temperature", 0},
                 {"include", {"message.output_text.logprobs"}},
                 {"top_logprobs", 2}};
    const json response = served.answer(kResponses, request);
    const json& got = response["output"][0]["content"][0]["logprobs"];
    expect_like(got, wanted);
    EXPECT_EQ(response["top_logprobs"], 2);

    request["stream"] = true;
    json streamed = json::array(), done;
    for (const json& event : typed_events(served.post(kResponses, request).body)) {
      if (event["type"] == "response.output_text.delta")
        for (const json& each : event["logprobs"]) streamed.push_back(each);
      if (event["type"] == "response.output_text.done") done = event["logprobs"];
    }
    expect_like(streamed, wanted);
    EXPECT_EQ(done, streamed);
  });
}

TEST(Responses, GiveLogProbabilitiesToTheTokensOfTheTextAlone) {
  const ScriptedServer server(
      template_file("chatml_tools") + "{# </think> #}",
      "<think>Hm.</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n"
      "</tool_call>");
  json request{{"input", "Weather?"},
               {"tools", json::array({kWeather})},
               {"include", {"message.output_text.logprobs"}}};
  const auto text_of = [](const json& scores) {
    std::string text;
    for (const json& each : scores)
      for (const json& byte : each["bytes"]) text += static_cast<char>(byte.get<int>());
    return text;
  };
  const json response = response_of(server, request);
  ASSERT_EQ(response["output"].size(), 3U);
  EXPECT_EQ(text_of(response["output"][1]["content"][0]["logprobs"]), "I look.");
  EXPECT_FALSE(response["output"][0]["content"][0].contains("logprobs"));

  request["stream"] = true;
  std::string streamed;
  for (const json& event : typed_events(server.post(kResponses, request).body))
    if (event["type"] == "response.output_text.delta") streamed += text_of(event["logprobs"]);
  EXPECT_EQ(streamed, "I look.");
}

TEST(Responses, RefuseWhatTheyCannotDoAndNameTheKey) {
  const ScriptedServer server(template_file("chatml_tools"), "Hi");
  const auto refusal = [&](json request) {
    if (!request.contains("input")) request["input"] = "a";
    const HttpAnswer answer = server.post(kResponses, request);
    EXPECT_EQ(answer.status, 400) << request << answer.body;
    const json error = json::parse(answer.body)["error"];
    const std::string message = error["message"];
    EXPECT_TRUE(message.starts_with(error["param"].get<std::string>() + ":")) << message;
    return message;
  };
  EXPECT_THAT(refusal({{"previous_response_id", "resp_1"}}),
              HasSubstr("previous_response_id: not supported; the server keeps no responses: send "
                        "the earlier items in input"));
  EXPECT_THAT(refusal({{"background", true}}), HasSubstr("background: not supported"));
  EXPECT_THAT(refusal({{"truncation", "auto"}}), HasSubstr("truncation: not supported"));
  EXPECT_THAT(refusal({{"max_tokens", 3}}), HasSubstr("responses have max_output_tokens"));
  EXPECT_THAT(refusal({{"max_output_tokens", 0}}),
              HasSubstr("max_output_tokens: wanted a whole number from 1"));
  EXPECT_THAT(refusal({{"messages", json::array()}}), HasSubstr("messages: not supported"));
  EXPECT_THAT(refusal({{"n", 2}}), HasSubstr("n: not supported"));
  EXPECT_THAT(refusal({{"input", json::array()}}), HasSubstr("input: wanted a text or a list"));
  EXPECT_THAT(refusal({{"input", {{{"type", "item_reference"}, {"id", "a"}}}}}),
              HasSubstr("got \"item_reference\""));
  EXPECT_THAT(refusal({{"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}}}}),
              HasSubstr("input: only parts of type input_text and output_text"));
  EXPECT_THAT(refusal({{"input", std::string(20000, 'a')}}), HasSubstr("input: the prompt has 20"));
  EXPECT_THAT(refusal({{"tools", {{{"type", "web_search"}}}}}),
              HasSubstr("tools: only functions are supported, got \"web_search\""));
  EXPECT_THAT(refusal({{"tool_choice", {{"type", "allowed_tools"}}}}),
              HasSubstr("tool_choice: only auto"));
  EXPECT_THAT(refusal({{"text", {{"format", {{"type", "grammar"}}}}}}),
              HasSubstr("text: only the types text, json_object and json_schema"));
  EXPECT_THAT(refusal({{"text", {{"verbosity", "low"}}}}), HasSubstr("text: only its member"));
  EXPECT_THAT(refusal({{"include", {"file_search_call.results"}}}), HasSubstr("include: only"));
  EXPECT_THAT(refusal({{"top_logprobs", 2}}), HasSubstr("top_logprobs: it needs"));
  EXPECT_THAT(refusal({{"logprobs", true}}), HasSubstr("logprobs: not supported"));
  EXPECT_THAT(refusal({{"reasoning", {{"effort", "low"}}}}),
              HasSubstr("reasoning: the model's chat template does not read it"));
  EXPECT_THAT(refusal({{"reasoning", {{"summary", "detailed"}}}}),
              HasSubstr("reasoning: only its member effort"));
  const json plain{{"input", "a"},
                   {"include", {"reasoning.encrypted_content"}},
                   {"truncation", "disabled"},
                   {"stream_options", {{"include_obfuscation", false}}},
                   {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
                   {"reasoning", {{"summary", "auto"}, {"effort", nullptr}}}};
  EXPECT_EQ(server.post(kResponses, plain).status, 200);
}
