// What requests may ask for: their depth, and the size of their answers.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/character_count.h"
#include "axonn/app/serve/http.h"
#include "axonn/foundation/base/utf8.h"

#include "tests/fuzz/memory.h"

using namespace axonn;
using nlohmann::json;
using testing::HasSubstr;

namespace {

ServedModel small_model() {
  const auto bytes = make_tokenizer("bytes");
  return {.name = "small",
          .tokenizer = bytes,
          .chat = std::make_shared<ChatTemplate>(bytes, find_chat_format("auto", "bytes")),
          .vocab = 256,
          .context = 512};
}

/// Why a request is refused; "" if it is not. A chat has "messages", a request for tokens "tokens".
std::string refusal_of(const std::string& body, const ServedModel& model = small_model()) {
  try {
    if (body.find("\"messages\"") != body.npos)
      parse_chat_completion(body, model);
    else if (body.find("\"tokens\"") != body.npos)
      parse_detokenize(body, model);
    else
      parse_completion(body, model);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string nested(int depth, const std::string& open = "[", const std::string& close = "]") {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

constexpr const char* kUser = R"({"role":"user","content":"Hi"})";

}  // namespace

TEST(Requests, NestOnlySoDeepWhereverItIs) {
  for (const std::string& deep : {nested(20'000), nested(20'000, R"({"a":)", "}"),
                                  nested(20'000, R"([{"a":[)", "]}]"), std::string(20'000, '[')})
    for (const std::string& body : {
             deep,
             R"({"prompt":)" + deep + "}",
             R"({"prompt":[1,)" + deep + "]}",
             R"({"prompt":["a",)" + deep + "]}",
             R"({"prompt":"a","stop":)" + deep + "}",
             R"({"prompt":"a","stop_token_ids":)" + deep + "}",
             R"({"prompt":"a","stop_token_ids":[)" + deep + "]}",
             R"({"prompt":"a","logit_bias":)" + deep + "}",
             R"({"prompt":"a","response_format":)" + deep + "}",
             R"({"prompt":"a","stream_options":)" + deep + "}",
             R"({"prompt":"a","seed":)" + deep + "}",
             R"({"prompt":"a","unknown":)" + deep + "}",
             R"({"tokens":)" + deep + "}",
             R"({"messages":)" + deep + "}",
             R"({"messages":[{"role":"user","content":)" + deep + "}]}",
             R"({"messages":[{"role":"tool","content":)" + deep + "}]}",
             concat(R"({"messages":[)", kUser, R"(],"tools":)", deep, "}"),
             concat(R"({"messages":[)", kUser, R"(],"chat_template_kwargs":{"a":)", deep, "}}"),
         })
      EXPECT_THAT(refusal_of(body), HasSubstr("nest deeper than 100")) << body.substr(0, 60);
  EXPECT_EQ(refusal_of(R"({"prompt":"a","unknown":)" + nested(99) + "}"), "");
}

// Texts within JSON are parsed again.
TEST(Requests, DeepArgumentsOfACallStayAText) {
  const json body{
      {"messages",
       {{{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"},
         {"tool_calls",
          {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", nested(100'000)}}}}}}},
        {{"role", "user"}, {"content", "Hi"}}}}};
  EXPECT_THAT(refusal_of(body.dump()), HasSubstr("this template writes no calls of tools"));
}

TEST(Requests, HaveOnlySoManyValues) {
  std::string list = "[0";
  for (int i = 0; i < 1 << 19; ++i) list += ",0";
  for (const std::string& body : {R"({"prompt":)" + list + "]}", R"({"tokens":)" + list + "]}",
                                  R"({"messages":)" + list + "]}", R"({"a":)" + list + "]}"})
    EXPECT_THAT(refusal_of(body), HasSubstr("more than 524288 values"));
}

TEST(Requests, WhatTheAnswerMayHaveIsBounded) {
  const ServedModel model = small_model();
  const auto values = [&](const json& body) { return parse_completion(body.dump(), model).values; };
  EXPECT_EQ(values({{"prompt", "ab"}}), 16);
  EXPECT_EQ(values({{"prompt", {"ab", "c"}}, {"n", 3}}), 2 * 3 * 16);
  EXPECT_EQ(values({{"prompt", "ab"}, {"max_tokens", 4096}}), 511) << "the context's end";
  EXPECT_EQ(values({{"prompt", "ab"}, {"logprobs", 0}}), 16 * 2);
  EXPECT_EQ(values({{"prompt", "ab"}, {"logprobs", 5}, {"echo", true}}), 18 * 7);
  EXPECT_EQ(values({{"prompt", "a"}, {"n", 256}, {"max_tokens", 4096}}), 256 * 512);
  const std::string refused =
      refusal_of(R"({"prompt":"a","n":256,"logprobs":100,"max_tokens":4096,"ignore_eos":true})");
  EXPECT_THAT(refused, HasSubstr("max_tokens: the answer could have 131072 tokens with 101 "
                                 "log-probabilities each, 13369344 values, more than 1048576"));
  EXPECT_THAT(refused, HasSubstr("lower max_tokens, n or logprobs, or send fewer prompts"));
  json prompts;
  for (int i = 0; i < 256; ++i) prompts.push_back(std::string(500, 'a'));
  EXPECT_THAT(
      refusal_of(
          json{{"prompt", prompts}, {"echo", true}, {"logprobs", 100}, {"max_tokens", 0}}.dump()),
      HasSubstr("more than 1048576"));
  EXPECT_THAT(refusal_of(R"({"messages":[{"role":"user","content":"Hi"}],"n":256,"logprobs":true,
                             "top_logprobs":20})"),
              HasSubstr("lower max_tokens, n or top_logprobs, or"));
}

TEST(Requests, HaveShortLists) {
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"stop", std::string(1001, 'x')}}.dump()),
              HasSubstr("stop: a text has more than 1000 bytes"));
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"stop", std::vector<std::string>(17, "x")}}.dump()),
              HasSubstr("stop: 17 texts, more than 16"));
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"stop_token_ids", std::vector(1001, 1)}}.dump()),
              HasSubstr("stop_token_ids: 1001 tokens, more than 1000"));
  EXPECT_THAT(refusal_of(json{{"messages", std::vector<json>(8193, json::parse(kUser))}}.dump()),
              HasSubstr("messages: 8193 messages, more than 8192"));
  EXPECT_THAT(refusal_of(json{{"prompt", std::vector<std::string>(257, "x")}}.dump()),
              HasSubstr("prompt: 257 prompts are more than 256"));
}

TEST(Requests, WholeNumbersMayBeWrittenAsFloats) {
  const ServedModel model = small_model();
  const CompletionRequest request = parse_completion(
      R"({"prompt":[1.0,2e0],"max_tokens":3.0,"n":2.0,"seed":5.0,"logprobs":1.0})", model);
  EXPECT_THAT(request.prompts, testing::ElementsAre(testing::ElementsAre(1, 2)));
  EXPECT_EQ(request.options.max_tokens, 3);
  EXPECT_EQ(request.copies, 2);
  EXPECT_EQ(request.options.seed, 5U);
  for (const char* number :
       {"1.5", "1e300", "-1.0", "1e400", "9223372036854775808", "\"1\"", "true"})
    EXPECT_NE(refusal_of(concat(R"({"prompt":"a","max_tokens":)", number, "}")), "") << number;
}

// A refusal shows a part of the value alone.
TEST(Requests, ARefusalIsShort) {
  std::string list = "[[0";
  for (int i = 0; i < 10'000; ++i) list += ",0";
  for (const std::string& value : {list + "]]", "[\"" + std::string(10'000, 'x') + "\"]"})
    for (const char* key : {"tokens", "stop_token_ids\":[],\"prompt"})
      EXPECT_LT(refusal_of(concat("{\"", key, "\":", value, "}")).size(), 500U) << key;
  EXPECT_LT(refusal_of(std::string(10'000, 'x')).size(), 500U);
}

// Small values are what takes most memory for each byte of a body.
TEST(Requests, TakeMemoryInProportionToTheirBytes) {
  const ServedModel model = small_model();
  std::string objects = "[{}", texts = "[\"\"", members = "{\"a\":0";
  while (objects.size() < std::size_t{1} << 16) {
    objects += ",{}";
    texts += ",\"a\"";
    members += concat(",\"", members.size(), "\":0");
  }
  for (const std::string& value : {objects + "]", texts + "]", members + "}"})
    for (const std::string& body :
         {R"({"prompt":"a","unknown":)" + value + "}", R"({"prompt":)" + value + "}",
          R"({"messages":[)" + std::string(kUser) + R"(],"documents":)" + value + "}"}) {
      const std::int64_t before = fuzz::held_bytes();
      fuzz::most_held_bytes();
      refusal_of(body, model);
      EXPECT_LT((fuzz::most_held_bytes() - before) / std::ssize(body), 100) << body.substr(0, 80);
    }
}

// What clients of vLLM, llama-server and others send to change the text.
TEST(Requests, KeysThatWouldChangeTheTextAreRefusedByName) {
  const std::pair<const char*, json> keys[] = {{"grammar_lazy", true},
                                               {"grammar_triggers", {"xyz"}},
                                               {"guided_whitespace_pattern", " "},
                                               {"preserved_tokens", {"a"}},
                                               {"bad_words", {"a"}},
                                               {"allowed_token_ids", {1}},
                                               {"typical_p", 0.5},
                                               {"mirostat", 2},
                                               {"mirostat_tau", 5},
                                               {"xtc_probability", 0.5},
                                               {"dry_multiplier", 0.8},
                                               {"no_repeat_ngram_size", 3},
                                               {"repeat_penalty", 1.2},
                                               {"prompt_logprobs", 1},
                                               {"truncate_prompt_tokens", 10},
                                               {"modalities", {"audio"}},
                                               {"modalities", {"text", "audio"}},
                                               {"audio", {{"voice", "a"}}},
                                               {"n_predict", 5},
                                               {"max_new_tokens", 5},
                                               {"samplers", {"top_k"}},
                                               {"dynatemp_range", 0.5},
                                               {"num_beams", 4},
                                               {"do_sample", false},
                                               {"logits_processors", {"a"}},
                                               {"skip_special_tokens", false},
                                               {"include_stop_str_in_output", true},
                                               {"chat_template", "{{ messages }}"},
                                               {"enable_thinking", false},
                                               {"extra_body", {{"top_k", 1}}},
                                               {"functions", json::array({json::object()})},
                                               {"verbosity", "low"}};
  for (const auto& [key, value] : keys)
    for (json body :
         {json{{"prompt", "a"}}, json{{"messages", json::array({json::parse(kUser)})}}}) {
      body[key] = value;
      EXPECT_THAT(refusal_of(body.dump()), testing::StartsWith(concat(key, ": not supported")));
    }
}

TEST(Requests, RefusedKeysMayHaveTheValueThatChangesNothing) {
  json body{{"prompt", "a"},          {"typical_p", 1.0},       {"mirostat", 0},
            {"xtc_probability", 0.0}, {"modalities", {"text"}}, {"grammar", nullptr},
            {"repeat_penalty", 1},    {"user", "me"},           {"best_of", 1},
            {"suffix", ""},           {"echo", false},          {"add_generation_prompt", true}};
  EXPECT_EQ(refusal_of(body.dump()), "");
  body.erase("prompt");
  body["messages"] = json::array({json::parse(kUser)});
  EXPECT_EQ(refusal_of(body.dump()), "");
}

TEST(Requests, KeysOfTheOtherKindOfRequestAreRefusedWithItsAddress) {
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"max_completion_tokens", 5}}.dump()),
              HasSubstr("max_completion_tokens: not supported; it is for /v1/chat/completions"));
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"tools", {1}}}.dump()), HasSubstr("tools: not"));
  EXPECT_THAT(
      refusal_of(json{{"messages", json::array({json::parse(kUser)})}, {"echo", true}}.dump()),
      HasSubstr("echo: not supported, except as false; it is for /v1/completions"));
}

TEST(Requests, UnknownKeysAreReported) {
  const CompletionRequest request =
      parse_completion(R"({"prompt":"a","colour":"red","user":"me"})", small_model());
  EXPECT_THAT(request.unknown_keys, testing::ElementsAre("colour"));
}

TEST(Requests, ALimitWithTwoNamesHasOneValue) {
  const auto tokens = [](json body) {
    body["messages"] = json::array({json::parse(kUser)});
    return parse_chat_completion(body.dump(), small_model()).options.max_tokens;
  };
  EXPECT_EQ(tokens({{"max_completion_tokens", 7}}), 7);
  EXPECT_EQ(tokens({{"max_tokens", 7}}), 7);
  EXPECT_EQ(tokens({{"max_tokens", 7}, {"max_completion_tokens", 7}}), 7);
  EXPECT_EQ(tokens({{"max_tokens", nullptr}, {"max_completion_tokens", 7}}), 7);
  EXPECT_THAT(refusal_of(json{
                  {"messages", json::array({json::parse(kUser)})},
                  {"max_tokens", 7},
                  {"max_completion_tokens",
                   8}}.dump()),
              HasSubstr("max_completion_tokens: it differs from max_tokens"));
}

TEST(Requests, IgnoreEosLeavesNoEndOfAChat) {
  const auto options = [](bool ignores) {
    const json body{{"messages", json::array({json::parse(kUser)})}, {"ignore_eos", ignores}};
    return parse_chat_completion(body.dump(), small_model()).options;
  };
  EXPECT_THAT(options(false).stop_strings, testing::ElementsAre("<|im_end|>"));
  EXPECT_THAT(options(true).stop_strings, testing::IsEmpty());
  EXPECT_THAT(options(true).stop_tokens, testing::IsEmpty());
}

TEST(Requests, SettingsOfSamplingReachTheGenerator) {
  const GenerationOptions options =
      parse_completion(R"({"prompt":"a","presence_penalty":0.5,"frequency_penalty":-0.25,
          "min_p":0.125,"min_tokens":3,"logit_bias":{"7":-100,"2":1.5}})",
                       small_model())
          .options;
  EXPECT_EQ(options.sampling.presence_penalty, 0.5);
  EXPECT_EQ(options.sampling.frequency_penalty, -0.25);
  EXPECT_EQ(options.sampling.min_p, 0.125);
  EXPECT_EQ(options.min_tokens, 3);
  EXPECT_THAT(options.logit_bias,
              testing::UnorderedElementsAre(testing::Pair(7, -100.f), testing::Pair(2, 1.5f)));
  json biases;
  for (int i = 0; i < 1001; ++i) biases[std::to_string(i)] = 1;
  EXPECT_THAT(refusal_of(json{{"prompt", "a"}, {"logit_bias", biases}}.dump()),
              HasSubstr("logit_bias: 1001 tokens, more than 1000"));
  EXPECT_THAT(
      refusal_of(json{{"messages", json::array({json::parse(kUser)})}, {"min_tokens", 3}}.dump()),
      HasSubstr("min_tokens: not supported, because this model's turns end with"));
}

TEST(Requests, AFormThatIsNotSupportedIsRefusedWithItsKey) {
  const auto refusal = [](const char* key, const json& value) {
    return refusal_of(json{{"prompt", "a"}, {key, value}}.dump());
  };
  EXPECT_THAT(refusal("guided_regex", "(?=a)"), testing::StartsWith("guided_regex: the pattern"));
  EXPECT_THAT(refusal("guided_json", {{"not", json::object()}}),
              testing::StartsWith("guided_json: the schema at #: the keyword 'not'"));
  EXPECT_THAT(refusal("guided_json", "{"), HasSubstr("guided_json: wanted a schema"));
  for (const int depth : {200, 5'000, 1'000'000})
    EXPECT_THAT(refusal("guided_json", nested(depth, "{\"items\":", "}")),
                HasSubstr("bytes and nest 100 deep"));
  EXPECT_THAT(refusal("guided_choice", json::array()), HasSubstr("guided_choice: wanted a list"));
  EXPECT_THAT(refusal("guided_choice", {""}), HasSubstr("none empty"));
  EXPECT_THAT(refusal("structured_outputs", {{"structural_tag", "a"}}),
              HasSubstr("structured_outputs: only json, regex, choice"));
  for (const char* key : {"grammar", "guided_grammar", "ebnf"}) {
    EXPECT_EQ(refusal(key, "root ::= \"a\""), "");
    EXPECT_THAT(refusal(key, "start: \"a\""),
                testing::StartsWith(concat(key, ": the grammar, at byte 6: wanted a rule")));
    EXPECT_THAT(refusal(key, 1), HasSubstr("wanted a grammar in GBNF"));
  }
  EXPECT_EQ(refusal("structured_outputs", {{"grammar", "root ::= \"a\""}}), "");
  EXPECT_EQ(refusal("grammar", ""), "");
  EXPECT_THAT(refusal("structured_outputs", {{"regex", "a"}, {"choice", {"a"}}}),
              HasSubstr("wanted one of"));
  EXPECT_THAT(refusal("response_format", {{"type", "xml"}}), HasSubstr("response_format: only"));
  EXPECT_THAT(refusal("response_format", {{"type", "json_schema"}}), HasSubstr("wanted a schema"));
  EXPECT_EQ(refusal("response_format", {{"type", "text"}}), "");
  EXPECT_THAT(
      refusal_of(json{{"prompt", "a"}, {"guided_regex", "a"}, {"guided_choice", {"a"}}}.dump()),
      HasSubstr("guided_regex: not supported beside guided_choice"));
  EXPECT_THAT(refusal("guided_regex", "(a{1000}){1000}"),
              HasSubstr("guided_regex: it is too large"));
  EXPECT_THAT(refusal("guided_choice", {std::string(70'000, 'a')}), HasSubstr("more than 32768"));
  EXPECT_THAT(refusal("guided_regex", nested(10'000, "(", ")")), HasSubstr("nest deeper than 100"));
}

// A refusal takes little memory and time, whatever the form.
TEST(Requests, FormsAreBounded) {
  const ServedModel model = small_model();
  std::string words = "[\"a\"";
  for (int i = 0; i < 9000; ++i) words += concat(",\"", i * 7919, "\"");
  for (const std::string& body :
       {std::string(R"({"prompt":"a","guided_regex":"((a{1,1000}){1,1000}b){1,1000}"})"),
        R"({"prompt":"a","guided_choice":)" + words + "]}",
        R"({"prompt":"a","guided_json":{"enum":)" + words + "]}}"}) {
    const std::int64_t before = fuzz::held_bytes();
    fuzz::most_held_bytes();
    refusal_of(body, model);
    EXPECT_LT(fuzz::most_held_bytes() - before, 32 << 20) << body.substr(0, 80);
  }
}

TEST(Requests, AnAnswerMayGoOnWithTheLastMessage) {
  const ServedModel model = small_model();
  const json messages{json::parse(kUser),
                      {{"role", "assistant"}, {"content", "It is <|im_end|> "}}};
  json body{{"messages", messages}, {"continue_final_message", true}};
  const auto prompt = [&] {
    return model.tokenizer->decode(parse_chat_completion(body.dump(), model).prompts[0]);
  };
  EXPECT_EQ(prompt(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nIt is <|im_end|> ");
  body["add_generation_prompt"] = false;
  EXPECT_THAT(prompt(), testing::EndsWith("It is <|im_end|> "));
  body["add_generation_prompt"] = true;
  EXPECT_THAT(refusal_of(body.dump()), HasSubstr("continue_final_message: it needs"));
  body = {{"messages", messages}, {"add_generation_prompt", false}};
  EXPECT_THAT(refusal_of(body.dump()), HasSubstr("add_generation_prompt: false is supported with"));
  body = {{"messages", json::array({json::parse(kUser)})}, {"continue_final_message", true}};
  EXPECT_THAT(refusal_of(body.dump()), HasSubstr("must be a text of the assistant"));
  body["messages"] = messages;
  body["messages"][1]["content"] = " ";
  EXPECT_THAT(refusal_of(body.dump()), HasSubstr("must be a text of the assistant"));
}

TEST(Requests, LikeliestTokensOfAChatNeedItsScores) {
  EXPECT_THAT(
      refusal_of(json{{"messages", json::array({json::parse(kUser)})}, {"top_logprobs", 2}}.dump()),
      HasSubstr("top_logprobs: it needs \"logprobs\": true"));
}

// nlohmann's library writes U+FFFD for bytes that are no characters; text_offset counts them.
TEST(Requests, CharactersAreCountedAsAnswersHaveThem) {
  std::uint64_t state = 1;
  const char bytes[] = {'a',    '\x80', '\xbf', '\xc3', '\xa9', '\xe2', '\x82', '\xac',
                        '\xf0', '\x9f', '\x98', '\xed', '\xa0', '\xff', '\xe0', '\xf4'};
  for (int round = 0; round < 2000; ++round) {
    CharacterCount pieces;
    std::string text;
    std::int64_t count = 0;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      std::string piece(1, bytes[state >> 60]);
      if (i % 3 == 0) piece += bytes[state >> 56 & 15];
      text += piece;
      count += pieces.add(piece);
    }
    const std::string shown = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
    ASSERT_EQ(count, code_points(json::parse(shown).get<std::string>())) << shown;
  }
}
