// POST /v1/messages, of Anthropic's API: the same request as a chat, and an answer of blocks.
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

constexpr const char* kMessages = "/v1/messages";

const json kTool = {{"name", "weather"}, {"input_schema", {{"type", "object"}}}};

json message_of(const ScriptedServer& server, json request) {
  request["max_tokens"] = 99;
  return json::parse(server.post(kMessages, request).body);
}

}  // namespace

TEST(Messages, AreTheTextOfTheSameChat) {
  with_server({}, [](const Served& served) {
    const json chat = served.answer(
        "/v1/chat/completions",
        {{"messages",
          {{{"role", "system"}, {"content", "Be short."}}, {{"role", "user"}, {"content", "Hi"}}}},
         {"temperature", 0},
         {"max_tokens", 9}});
    json request{{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                 {"system", "Be short."},
                 {"temperature", 0},
                 {"max_tokens", 9}};
    const json message = served.answer(kMessages, request);
    EXPECT_EQ(message["type"], "message");
    EXPECT_EQ(message["role"], "assistant");
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    const std::string text = chat["choices"][0]["message"]["content"];
    ASSERT_EQ(message["content"].size(), 1U);
    EXPECT_EQ(message["content"][0], json({{"type", "text"}, {"text", text}}));
    EXPECT_EQ(message["usage"]["output_tokens"], 9);
    EXPECT_EQ(message["usage"]["input_tokens"].get<int>() +
                  message["usage"]["cache_read_input_tokens"].get<int>(),
              chat["usage"]["prompt_tokens"]);

    request["stop_sequences"] = {"no", text.substr(3, 1)};
    const json stopped = served.answer(kMessages, request);
    EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
    EXPECT_EQ(stopped["stop_sequence"], text.substr(3, 1));
    EXPECT_EQ(stopped["content"][0]["text"], text.substr(0, text.find(text[3])));
  });
}

TEST(Messages, HaveThoughtsTextAndCallsAsBlocks) {
  const ScriptedServer server(
      template_file("chatml_tools") + "{# </think> #}",
      "<think>Hm.</think>I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"a\": 1}}\n"
      "</tool_call>");
  json turns{{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Weather?"}}}}}};
  json request{{"messages", turns}, {"tools", json::array({kTool})}};
  const json message = message_of(server, request);
  EXPECT_THAT(server.prompt(), HasSubstr(R"({"type": "function", "function": {"name": "weather")"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  const json& blocks = message["content"];
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0]["thinking"], "Hm.");
  EXPECT_EQ(blocks[1]["text"], "I look.");
  EXPECT_EQ(blocks[2]["type"], "tool_use");
  EXPECT_EQ(blocks[2]["name"], "weather");
  EXPECT_EQ(blocks[2]["input"], json({{"a", 1}}));

  request["stream"] = true;
  request["max_tokens"] = 99;
  const auto events = typed_events(server.post(kMessages, request).body);
  EXPECT_THAT(types_of(events),
              ElementsAre("message_start", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[events.size() - 4]["delta"]["partial_json"], "{\"a\":1}");
  EXPECT_EQ(events[events.size() - 3]["index"], 2);
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");

  // The blocks, sent again with the result, are turns of the chat.
  turns.push_back({{"role", "assistant"}, {"content", blocks}});
  turns.push_back(
      {{"role", "user"},
       {"content",
        {{{"type", "tool_result"}, {"tool_use_id", blocks[2]["id"]}, {"content", "sunny"}}}}});
  request = {{"messages", turns}, {"tools", json::array({kTool})}};
  message_of(server, request);
  EXPECT_THAT(server.prompt(),
              HasSubstr("<|im_start|>assistant\nI look.\n<tool_call>\n{\"name\": \"weather\", "
                        "\"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n"
                        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>"));
}

TEST(Messages, GoOnWithALastMessageOfTheAssistant) {
  const ScriptedServer server(template_file("chatml_tools"), " there");
  const json message = message_of(
      server,
      {{"messages",
        {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "Hi"}}}}});
  EXPECT_THAT(server.prompt(), testing::EndsWith("<|im_start|>assistant\nHi"));
  EXPECT_EQ(message["content"][0]["text"], " there");
  EXPECT_EQ(message["stop_reason"], "end_turn");
}

TEST(Messages, RefuseWhatTheyCannotDoAndNameTheKey) {
  const ScriptedServer server(template_file("chatml_tools"), "Hi");
  const auto refusal = [&](json request) {
    if (!request.contains("messages")) request["messages"] = {{{"role", "user"}, {"content", "a"}}};
    if (!request.contains("max_tokens")) request["max_tokens"] = 9;
    const HttpAnswer answer = server.post(kMessages, request);
    EXPECT_EQ(answer.status, 400) << request << answer.body;
    const json error = json::parse(answer.body)["error"];
    const std::string message = error["message"];
    EXPECT_TRUE(message.starts_with(error["param"].get<std::string>() + ":")) << message;
    return message;
  };
  EXPECT_THAT(refusal({{"max_tokens", nullptr}}), HasSubstr("max_tokens: wanted a whole number"));
  EXPECT_THAT(refusal({{"output_config", {{"effort", "low"}}}}),
              HasSubstr("output_config: not supported; use guided_json"));
  EXPECT_THAT(refusal({{"stop", "a"}}), HasSubstr("stop: not supported; messages have stop_seq"));
  EXPECT_THAT(refusal({{"stop_sequences", "a"}}), HasSubstr("stop_sequences: wanted a list"));
  EXPECT_THAT(refusal({{"stop_sequences", {""}}}), HasSubstr("stop_sequences: wanted a text"));
  EXPECT_THAT(refusal({{"thinking", {{"type", "enabled"}}}}),
              HasSubstr("thinking: not supported; use chat_template_kwargs"));
  EXPECT_THAT(refusal({{"messages", {{{"role", "system"}, {"content", "a"}}}}}),
              HasSubstr("messages: wanted the role user or assistant"));
  EXPECT_THAT(refusal({{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}}),
              HasSubstr("messages: only blocks of type text are supported here, got \"image\""));
  EXPECT_THAT(refusal({{"messages", json::array()}}), HasSubstr("messages: wanted a list"));
  EXPECT_THAT(refusal({{"tools", {{{"type", "bash_20250124"}, {"name", "bash"}}}}}),
              HasSubstr("tools: only tools of the client are supported"));
  EXPECT_THAT(refusal({{"tool_choice", "auto"}}), HasSubstr("tool_choice: wanted an object"));
  EXPECT_THAT(refusal({{"tool_choice", {{"type", "any"}}}}),
              HasSubstr("tool_choice: there are no tools"));
}
