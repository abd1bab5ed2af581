#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/app/serve/answer_writer.h"
#include "axonn/app/serve/http.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

/// Fields that all parts of an answer share.
struct AnswerHead {
  const ServedModel& model;
  const CompletionRequest& request;
  std::string id;            // "cmpl-..."
  std::int64_t created = 0;  // seconds since 1970
};

std::string sent(const Json& value) { return "data: " + dumped(value) + "\n\n"; }

const char* reason_name(FinishReason reason, bool called) {
  if (is_cut_off(reason)) return "length";
  return called ? "tool_calls" : "stop";
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

Json completion_scores(const ServedModel& model, const ChoiceNews& of) {
  Json tokens = Json::array(), values = Json::array(), likeliest = Json::array();
  const std::size_t missing = of.tokens.size() - of.scores.size();  // 1 if a prompt begins there
  for (std::size_t i = 0; i < of.tokens.size(); ++i) {
    tokens.push_back(token_text(model, of.tokens[i]));
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
          {"text_offset", of.offsets}};
}

Json chat_token(const ServedModel& model, std::int32_t token, float log_probability) {
  Json bytes = Json::array();
  if (token < model.tokenizer->vocab_size())
    for (const char byte : model.tokenizer->bytes_of(token))
      bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", token_text(model, token)}, {"logprob", log_probability}, {"bytes", bytes}};
}

Json scores_json(const AnswerHead& head, const ChoiceNews& of) {
  if (!head.request.scored) return nullptr;
  if (head.request.chat()) return {{"content", chat_scores(head.model, of)}};
  return completion_scores(head.model, of);
}

Json calls_json(const AnswerHead& head, const ChoiceNews& of, bool stream) {
  Json calls = Json::array();
  for (const ToolCall& call : of.parts.calls) {
    const std::size_t number = calls.size();
    Json one = stream ? Json{{"index", number}} : Json::object();
    one["id"] = call_id(head.id, of.index, number);
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    calls.push_back(std::move(one));
  }
  return calls;
}

Json message_json(const AnswerHead& head, const ChoiceNews& choice) {
  const AnswerParts& parts = choice.parts;
  Json message{{"role", "assistant"}, {"content", parts.text}};
  if (parts.text.empty() && !parts.calls.empty()) message["content"] = nullptr;
  if (!parts.thought.empty()) message["reasoning_content"] = parts.thought;
  if (!parts.calls.empty()) message["tool_calls"] = calls_json(head, choice, false);
  return message;
}

Json head_json(const AnswerHead& head, const char* object) {
  return {
      {"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model.name}};
}

Json usage_json(const CompletionRequest& request, const AnswerUsage& usage) {
  const std::int64_t read = prompt_tokens(request);
  return {{"prompt_tokens", read},
          {"completion_tokens", usage.generated},
          {"total_tokens", read + usage.generated},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

/// An event of a stream with one choice.
Json event_json(const AnswerHead& head, std::size_t index) {
  const bool chat = head.request.chat();
  Json event = head_json(head, chat ? "chat.completion.chunk" : "text_completion");
  Json choice{{"index", index}};
  if (chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  event["choices"] = Json::array({choice});
  if (head.request.stream_usage) event["usage"] = nullptr;
  return event;
}

/// Of completions and chats.
class CompletionWriter : public AnswerWriter {
 public:
  explicit CompletionWriter(AnswerHead head) : head_(std::move(head)) {}

  std::string begin() override {
    std::string begin = dumped(head_json(head_, is_chat() ? "chat.completion" : "text_completion"));
    begin.pop_back();
    return begin + ",\"choices\":[";
  }

  std::string choice(const ChoiceNews& of) override {
    Json choice{{"index", of.index}};
    if (is_chat())
      choice["message"] = message_json(head_, of);
    else
      choice["text"] = of.parts.text;
    choice["logprobs"] = scores_json(head_, of);
    choice["finish_reason"] = reason_name(*of.end, !of.parts.calls.empty());
    return (of.index > 0 ? "," : "") + dumped(choice);
  }

  std::string end(const AnswerUsage& usage) override {
    return "],\"usage\":" + dumped(usage_json(head_.request, usage)) + "}\n";
  }

  /// Says whose message a chat's choice is.
  std::string stream_begin(std::size_t index) override {
    if (!is_chat()) return "";
    Json event = event_json(head_, index);
    event["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
    return sent(event);
  }

  /// Calls of tools come with the end of their choice.
  std::string stream_news(const ChoiceNews& news) override {
    std::string events;
    const AnswerParts& parts = news.parts;
    if (!parts.empty() || !news.tokens.empty()) {
      Json event = event_json(head_, news.index);
      Json& choice = event["choices"][0];
      if (!is_chat()) choice["text"] = parts.text;
      if (!parts.thought.empty()) choice["delta"]["reasoning_content"] = parts.thought;
      if (is_chat() && !parts.text.empty()) choice["delta"]["content"] = parts.text;
      if (!parts.calls.empty()) choice["delta"]["tool_calls"] = calls_json(head_, news, true);
      choice["logprobs"] = scores_json(head_, news);
      events = sent(event);
    }
    if (!news.end) return events;
    Json event = event_json(head_, news.index);
    event["choices"][0]["finish_reason"] = reason_name(*news.end, !parts.calls.empty());
    return events + sent(event);
  }

  /// The count of tokens, if the request asks for it, and [DONE].
  std::string stream_done(const AnswerUsage& usage) override {
    std::string text;
    if (head_.request.stream_usage) {
      Json event = head_json(head_, is_chat() ? "chat.completion.chunk" : "text_completion");
      event["choices"] = Json::array();
      event["usage"] = usage_json(head_.request, usage);
      text = sent(event);
    }
    return text + "data: [DONE]\n\n";
  }

  std::string stream_fault(const std::string& why) override {
    return "data: " + error_json(why, "server_error") + '\n';
  }

 private:
  bool is_chat() const { return head_.request.chat(); }

  AnswerHead head_;
};

}  // namespace

nlohmann::ordered_json chat_scores(const ServedModel& model, const ChoiceNews& of) {
  Json scores = Json::array();
  for (std::size_t i = 0; i < of.tokens.size(); ++i) {
    const TokenScore& score = of.scores[i];
    Json token = chat_token(model, of.tokens[i], score.log_probability);
    token["top_logprobs"] = Json::array();
    for (const auto& [each, log_probability] : score.likeliest)
      token["top_logprobs"].push_back(chat_token(model, each, log_probability));
    scores.push_back(std::move(token));
  }
  return scores;
}

std::unique_ptr<AnswerWriter> make_completion_writer(const ServedModel& model,
                                                     const CompletionRequest& request) {
  return std::make_unique<CompletionWriter>(
      AnswerHead{model, request, answer_id(request.chat() ? "chatcmpl" : "cmpl"), model.clock()});
}

}  // namespace axonn
