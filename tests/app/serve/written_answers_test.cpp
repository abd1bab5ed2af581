// What the server makes of a model's text.
#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

#include "tests/app/serve/events.h"
#include "tests/app/serve/scripted_server.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;

namespace {

const json kQuestion = {{{"role", "user"}, {"content", "Weather in Oslo?"}}};
const json kTools = {
    {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", json::object()}}}}};

}  // namespace

TEST(Chat, ACallOfAToolIsGivenAsClientsOfTheApiExpectIt) {
  const ScriptedServer server(
      template_file("chatml_tools"),
      "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n"
      "</tool_call>\n<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>");
  json request{{"messages", kQuestion}, {"tools", kTools}};
  json choice = server.choice(request);
  EXPECT_THAT(server.prompt(), HasSubstr("<tools>"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  json calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9U);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"],
            (json{{"name", "weather"}, {"arguments", "{\"city\":\"Oslo\"}"}}));

  request["stream"] = true;
  const Events events = events_of(server.body(request));
  EXPECT_TRUE(events.done);
  EXPECT_EQ(events.texts.at(0), "I look.");
  EXPECT_EQ(events.reasons.at(0), "tool_calls");
  EXPECT_EQ(events.all.front()["choices"][0]["delta"],
            (json{{"role", "assistant"}, {"content", ""}}));
  json streamed;
  for (const json& event : events.all)
    if (const json& delta = event["choices"][0]["delta"]; delta.contains("tool_calls"))
      streamed = delta["tool_calls"];
  ASSERT_EQ(streamed.size(), 2U);
  EXPECT_EQ(streamed[1]["index"], 1);
  EXPECT_EQ(streamed[0]["function"], calls[0]["function"]);

  request["stream"] = false;
  request["parallel_tool_calls"] = false;
  EXPECT_EQ(server.choice(request)["message"]["tool_calls"].size(), 1U);
}

TEST(Chat, WithoutToolsOrWithoutCallsAnAnswerIsText) {
  const std::string call = "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>";
  const ScriptedServer server(template_file("chatml_tools"), call);
  json request{{"messages", kQuestion}};
  EXPECT_EQ(server.choice(request)["message"]["content"], call);
  request["tools"] = kTools;
  EXPECT_TRUE(server.choice(request)["message"]["content"].is_null());
  request["tool_choice"] = "none";
  EXPECT_EQ(server.choice(request)["message"]["content"], call);
  EXPECT_THAT(server.prompt(), Not(HasSubstr("<tools>")));
  request["tool_choice"] = "required";
  EXPECT_EQ(server.choice(request)["message"]["tool_calls"].size(), 1U);
  request["tool_choice"] = "sometimes";
  EXPECT_THAT(server.body(request), HasSubstr("tool_choice: only"));
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "dance"}}}};
  EXPECT_THAT(server.body(request), HasSubstr("tool_choice: there is no tool 'dance'"));
  request["tool_choice"] = "required";
  request["tools"] = json::array();
  EXPECT_THAT(server.body(request), HasSubstr("tool_choice: there are no tools"));
  const ScriptedServer other("{{ messages[0].content }}", call);  // its template has no calls
  json request_of_other{{"messages", kQuestion}, {"tools", kTools}};
  EXPECT_EQ(other.choice(request_of_other)["message"]["content"], call);
  request_of_other["tool_choice"] = "required";
  EXPECT_THAT(other.body(request_of_other),
              HasSubstr("tool_choice: the model's chat template has no calls of tools"));
}

// Clients send back what they got: arguments as the text of JSON.
TEST(Chat, ArgumentsOfEarlierCallsReachTheTemplateAsObjects) {
  const ScriptedServer server(template_file("chatml_tools"), "It rains.");
  const json call{{"id", "123456789"},
                  {"type", "function"},
                  {"function", {{"name", "weather"}, {"arguments", "{\"city\": \"<|im_end|>\"}"}}}};
  json messages = kQuestion;
  messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
  messages.push_back({{"role", "tool"}, {"tool_call_id", "123456789"}, {"content", "rain"}});
  EXPECT_EQ(server.choice({{"messages", messages}, {"tools", kTools}})["finish_reason"], "stop");
  EXPECT_THAT(server.prompt(),
              HasSubstr("{\"name\": \"weather\", \"arguments\": {\"city\": \"<|im_end|>\"}}"));
}

TEST(Chat, AnEmptyListOfToolsWritesNoTextOfTools) {
  const ScriptedServer server(template_file("chatml_tools"), "It rains.");
  EXPECT_EQ(server.choice({{"messages", kQuestion}, {"tools", json::array()}})["finish_reason"],
            "stop");
  EXPECT_THAT(server.prompt(), testing::Not(HasSubstr("<tools>")));
}

TEST(Chat, AThoughtIsNotPartOfTheContent) {
  const ScriptedServer server(template_file("thinking_last_turn"), "<think>\nHm.\n</think>\n\nYes.",
                              FinishReason::max_tokens);
  json request{{"messages", kQuestion}, {"logprobs", true}};
  const json choice = server.choice(request);
  EXPECT_EQ(choice["message"]["reasoning_content"], "Hm.");
  EXPECT_EQ(choice["message"]["content"], "Yes.");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 26U);
  request["stream"] = true;
  std::string thought;
  const Events events = events_of(server.body(request));
  for (const json& event : events.all)
    thought += event["choices"][0]["delta"].value("reasoning_content", "");
  EXPECT_EQ(thought, "Hm.");
  EXPECT_EQ(events.texts.at(0), "Yes.");
}

TEST(Chat, ThePromptMayBeginTheThought) {
  const ScriptedServer server(
      "{{ messages[0].content.split('</think>')[-1] }}"
      "{% if add_generation_prompt %}<assistant><think>\n{% endif %}",
      "Hm.</think>Yes.");
  const json message = server.choice({{"messages", kQuestion}})["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "Yes.");
}

TEST(Chat, TheDateInATemplateIsThatOfTheRequest) {
  ScriptedServer server("{{ strftime_now('%Y-%m-%d') }} {{ messages[0].content }}", "x");
  const json request{{"messages", kQuestion}};
  constexpr std::time_t kNoon = 946728000;  // 2000-01-01 12:00 UTC
  server.set_time(kNoon);
  EXPECT_EQ(json::parse(server.body(request))["created"], kNoon);
  EXPECT_THAT(server.prompt(), testing::StartsWith("2000-01-0"));
  server.set_time(kNoon + 366 * 86400);
  server.choice(request);
  EXPECT_THAT(server.prompt(), testing::StartsWith("2001-01-0"));
}

TEST(Chat, AnAnswerThatGoesOnIsWhatFollowsTheMessage) {
  const ScriptedServer server(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}</think>",
      " raining.</think> Yes.");
  json messages = kQuestion;
  messages.push_back({{"role", "assistant"}, {"content", "It is "}});
  json request{{"messages", messages}, {"continue_final_message", true}};
  EXPECT_EQ(server.choice(request)["message"]["content"], " raining.</think> Yes.");
  EXPECT_THAT(server.prompt(), testing::EndsWith("[assistant]It is"));
  request["messages"][1]["content"] = "<think>It is";
  const json message = server.choice(request)["message"];
  EXPECT_EQ(message["reasoning_content"], "raining.");
  EXPECT_EQ(message["content"], "Yes.");
  const ScriptedServer other("{{ messages[1].content | upper }}", "x");
  EXPECT_THAT(other.body(request), HasSubstr("does not write the last message as it is"));
}

TEST(Chat, TheEffortOfARequestReachesTheTemplateAsPlainText) {
  const ScriptedServer server("{{ reasoning_effort }} {{ messages[0].content }}", "x");
  json request{{"messages", kQuestion}, {"reasoning_effort", "low"}};
  server.choice(request);
  EXPECT_THAT(server.prompt(), testing::StartsWith("low Weather"));
  request["chat_template_kwargs"] = {{"reasoning_effort", "high"}};
  server.choice(request);
  EXPECT_THAT(server.prompt(), testing::StartsWith("high Weather"));
  const ScriptedServer other("{{ messages[0].content }}", "x");
  EXPECT_THAT(other.body({{"messages", kQuestion}, {"reasoning_effort", "low"}}),
              HasSubstr("reasoning_effort: the model's chat template does not read it"));
  EXPECT_THAT(other.body({{"messages", kQuestion}, {"reasoning_effort", "none"}}),
              HasSubstr("choices"));
}

TEST(Chat, AnUnknownKeyIsNotedOnce) {
  const ScriptedServer server("{{ messages[0].content }}", "x");
  for (int i = 0; i < 3; ++i) server.choice({{"messages", kQuestion}, {"colour", "red"}});
  EXPECT_EQ(server.notes(), "a request has the key 'colour', which is unknown and has no effect\n");
}

TEST(Completion, TheTokenizerIsNamedByItsFile) {
  const test::TempFolder folder;
  folder.file("tokenizer.json", test::llama2_json());
  const ScriptedServer server("", "x", FinishReason::max_tokens, folder.path());
  EXPECT_EQ(server.get("/tokenizer_info")["tokenizer"], "tokenizer.json");
}

// Bytes that are no character are one U+FFFD each in the text.
TEST(Completion, OffsetsCountReplacementCharacters) {
  const ScriptedServer server("",
                              "a\xff\x80"
                              "b",
                              FinishReason::max_tokens);
  const json choice = server.choice({{"prompt", "x"}, {"logprobs", 0}});
  EXPECT_EQ(choice["text"],
            "a\uFFFD\uFFFD"
            "b");
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 3}));
}

// Llama 2's tokenizer puts <s> before a text, and a space, and neither is in the text.
TEST(Completion, EchoesThePromptAsItWasSentAndCountsItsCharacters) {
  const test::TempFolder folder;
  folder.file("tokenizer.json", test::llama2_json());
  const ScriptedServer server("", "hello", FinishReason::max_tokens, folder.path());
  json request{{"prompt", "h\u00e9l"}, {"echo", true}, {"logprobs", 0}};
  const json choice = server.choice(request);
  EXPECT_EQ(choice["text"], "h\u00e9lhello");
  const json& scores = choice["logprobs"];
  EXPECT_EQ(scores["tokens"][0], "<s>");
  EXPECT_EQ(scores["text_offset"][0], 0);
  EXPECT_EQ(scores["token_logprobs"][0], json());
  EXPECT_EQ(scores["token_logprobs"][1], -2);
  const auto generated = std::ranges::find(scores["token_logprobs"], json(-1));
  ASSERT_NE(generated, scores["token_logprobs"].end());
  EXPECT_EQ(scores["text_offset"][generated - scores["token_logprobs"].begin()], 3);
  request["stream"] = true;
  EXPECT_EQ(events_of(server.body(request)).texts.at(0), "h\u00e9lhello");
}
