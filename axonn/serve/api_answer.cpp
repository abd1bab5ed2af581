#include "axonn/serve/api_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/utf8.h"
#include "axonn/serve/http.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& value) {
  // A model may write invalid UTF-8, which JSON cannot hold.
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sent(const Json& value) { return "data: " + dumped(value) + "\n\n"; }

const char* reason_name(FinishReason reason) {
  const bool full = reason == FinishReason::max_tokens || reason == FinishReason::context;
  return full ? "length" : "stop";
}

/// The characters of a token; "bytes:\xe2\x82" if they are not whole characters, as OpenAI has it.
std::string token_text(const ServedModel& model, std::int32_t token) {
  if (token >= model.tokenizer->vocab_size()) return fmt::format("token:{}", token);
  const std::string_view bytes = model.tokenizer->bytes_of(token);
  if (valid_utf8_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::size_t characters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; });
}

/// Tokens and their scores; the first has none if it begins the prompt.
struct ScoredTokens {
  std::vector<std::int32_t> tokens;
  std::vector<TokenScore> scores;  ///< of the last so many tokens
};

ScoredTokens scored_tokens(const CompletionRequest& request, std::size_t prompt,
                           const Generation& result) {
  ScoredTokens all;
  if (request.options.score_prompt) {
    all.tokens = request.prompts[prompt];
    all.scores = result.prompt_scores;
  }
  all.tokens.insert(all.tokens.end(), result.tokens.begin(), result.tokens.end());
  all.scores.insert(all.scores.end(), result.scores.begin(), result.scores.end());
  return all;
}

/// The likeliest tokens by their characters, the token itself among them. Of several with the same
/// characters the likeliest counts.
Json likeliest_json(const ServedModel& model, std::int32_t token, const TokenScore& score) {
  Json found = Json::object();
  const auto add = [&](std::int32_t each, float log_probability) {
    const std::string text = token_text(model, each);
    if (!found.contains(text)) found[text] = log_probability;
  };
  for (const auto& [each, log_probability] : score.likeliest) add(each, log_probability);
  add(token, score.log_probability);
  return found;
}

Json completion_scores(const ServedModel& model, const ScoredTokens& of) {
  Json tokens = Json::array(), values = Json::array(), likeliest = Json::array(),
       offsets = Json::array();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < of.tokens.size(); ++i) {
    const std::size_t missing = of.tokens.size() - of.scores.size();
    tokens.push_back(token_text(model, of.tokens[i]));
    offsets.push_back(offset);
    if (of.tokens[i] < model.tokenizer->vocab_size())
      offset += characters_of(model.tokenizer->bytes_of(of.tokens[i]));
    if (i < missing) {
      values.push_back(nullptr);
      likeliest.push_back(nullptr);
    } else {
      const TokenScore& score = of.scores[i - missing];
      values.push_back(score.log_probability);
      likeliest.push_back(likeliest_json(model, of.tokens[i], score));
    }
  }
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", likeliest},
          {"text_offset", offsets}};
}

Json chat_token(const ServedModel& model, std::int32_t token, float log_probability) {
  Json bytes = Json::array();
  if (token < model.tokenizer->vocab_size())
    for (const char byte : model.tokenizer->bytes_of(token))
      bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", token_text(model, token)}, {"logprob", log_probability}, {"bytes", bytes}};
}

Json chat_scores(const ServedModel& model, const ScoredTokens& of) {
  Json content = Json::array();
  for (std::size_t i = 0; i < of.tokens.size(); ++i) {
    const TokenScore& score = of.scores[i];
    Json token = chat_token(model, of.tokens[i], score.log_probability);
    token["top_logprobs"] = Json::array();
    for (const auto& [each, log_probability] : score.likeliest)
      token["top_logprobs"].push_back(chat_token(model, each, log_probability));
    content.push_back(std::move(token));
  }
  return {{"content", content}};
}

Json head_json(const AnswerHead& head, const char* object) {
  return {
      {"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model.name}};
}

Json usage_json(const CompletionRequest& request, std::int64_t generated) {
  std::int64_t read = 0;
  for (const auto& prompt : request.prompts) read += std::ssize(prompt);
  return {{"prompt_tokens", read},
          {"completion_tokens", generated},
          {"total_tokens", read + generated}};
}

/// A piece of a stream with one choice, which may have ended.
Json piece_json(const AnswerHead& head, std::size_t index) {
  const bool chat = head.request.chat;
  Json piece = head_json(head, chat ? "chat.completion.chunk" : "text_completion");
  Json choice{{"index", index}};
  if (chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  piece["choices"] = Json::array({choice});
  return piece;
}

}  // namespace

std::string answer_json(const AnswerHead& head, const std::vector<Generation>& results) {
  const CompletionRequest& request = head.request;
  Json answer = head_json(head, request.chat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  std::int64_t generated = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Generation& result = results[i];
    const std::size_t prompt = i / static_cast<std::size_t>(request.copies);
    generated += std::ssize(result.tokens);
    Json choice{{"index", i}};
    std::string text = result.text;
    if (request.echo) text.insert(0, head.model.tokenizer->decode(request.prompts[prompt]));
    if (request.chat)
      choice["message"] = {{"role", "assistant"}, {"content", text}};
    else
      choice["text"] = text;
    choice["logprobs"] = nullptr;
    if (request.options.likeliest >= 0) {
      const ScoredTokens scored = scored_tokens(request, prompt, result);
      choice["logprobs"] =
          request.chat ? chat_scores(head.model, scored) : completion_scores(head.model, scored);
    }
    choice["finish_reason"] = reason_name(result.reason);
    answer["choices"].push_back(std::move(choice));
  }
  answer["usage"] = usage_json(request, generated);
  return dumped(answer) + '\n';
}

std::string stream_piece(const AnswerHead& head, std::size_t index, std::string_view text,
                         bool first) {
  Json piece = piece_json(head, index);
  Json& choice = piece["choices"][0];
  if (head.request.chat) {
    if (first) choice["delta"]["role"] = "assistant";
    choice["delta"]["content"] = text;
  } else {
    choice["text"] = text;
  }
  return sent(piece);
}

std::string stream_end(const AnswerHead& head, std::size_t index, FinishReason reason) {
  Json piece = piece_json(head, index);
  piece["choices"][0]["finish_reason"] = reason_name(reason);
  return sent(piece);
}

std::string stream_done(const AnswerHead& head, std::int64_t generated) {
  std::string text;
  if (head.request.stream_usage) {
    Json piece = head_json(head, head.request.chat ? "chat.completion.chunk" : "text_completion");
    piece["choices"] = Json::array();
    piece["usage"] = usage_json(head.request, generated);
    text = sent(piece);
  }
  return text + "data: [DONE]\n\n";
}

std::string stream_fault(const std::string& why) {
  return "data: " + error_json(why, "server_error") + '\n';
}

}  // namespace axonn
