// What clients send to axonn serve, beneath its connections.
#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/http.h"

#include "tests/fuzz/targets.h"

namespace axonn::fuzz {

void api_request(std::string_view input) {
  static const auto kBytes = make_tokenizer("bytes");
  static const ServedModel kModel{
      .name = "model",
      .tokenizer = kBytes,
      .chat = std::make_shared<ChatTemplate>(kBytes, find_chat_format("auto", "bytes")),
      .vocab = 256,
      .context = 512,
      .width = 8};
  const std::string body(input);
  for (const auto& parse :
       {+[](const std::string& text) { (void)parse_completion(text, kModel); },
        +[](const std::string& text) { (void)parse_chat_completion(text, kModel); },
        +[](const std::string& text) { (void)parse_responses(text, kModel); },
        +[](const std::string& text) { (void)parse_messages(text, kModel); },
        +[](const std::string& text) { (void)parse_embeddings(text, kModel); },
        +[](const std::string& text) { (void)parse_tokenize(text, kModel); },
        +[](const std::string& text) { (void)parse_detokenize(text, kModel); }})
    try {
      parse(body);
    } catch (const UsageError&) {  // the other requests may read it
    }
}

std::vector<std::string> api_request_seeds() {
  return {
      R"({"prompt": ["a", "b"], "max_tokens": 3.0, "n": 2, "stop": ["x"], "logprobs": 1})",
      R"({"prompt": [[1, 2], [3]], "echo": true, "stop_token_ids": [4], "seed": -1})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
              {"role": "assistant", "tool_calls": [{"type": "function", "function":
              {"name": "f", "arguments": "{\"a\": [1]}"}}]}, {"role": "tool", "content": [1]}],
              "tools": [{"type": "function"}], "tool_choice": "auto", "top_logprobs": 2})",
      R"({"prompt": "a", "guided_json": {"type": "object", "properties": {"a": {"type": "string",
              "pattern": "^[a-z\\d]{2,3}$"}, "b": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
              "required": ["a"]}, "min_p": 0.1, "logit_bias": {"3": 1}})",
      R"({"prompt": "a", "structured_outputs": {"regex": "(a|[^b-d]\\w)*?c{2}"}})",
      R"({"input": ["a", [1, 2]], "encoding_format": "base64", "pooling": "last"})",
      R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
              {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
              {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
              {"type": "function_call_output", "call_id": "1", "output": "b"}],
              "instructions": "c", "tools": [{"type": "function", "name": "f"}],
              "tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": 3})",
      R"({"input": "a", "text": {"format": {"type": "json_schema", "name": "b", "schema": {}}},
              "reasoning": {"effort": null}, "include": ["reasoning.encrypted_content"]})",
      R"({"max_tokens": 3, "system": [{"type": "text", "text": "a"}], "stop_sequences": ["b"],
              "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "auto",
              "disable_parallel_tool_use": true}, "messages": [{"role": "assistant", "content":
              [{"type": "thinking", "thinking": "c"}, {"type": "tool_use", "id": "1", "name": "f",
              "input": {"d": [1]}}]}, {"role": "user", "content": [{"type": "tool_result",
              "tool_use_id": "1", "content": "e"}, {"type": "text", "text": "g"}]}]})",
      R"({"tokens": [1, 2.0, 255]})"};
}

}  // namespace axonn::fuzz
