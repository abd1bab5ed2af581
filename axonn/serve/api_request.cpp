#include "axonn/serve/api_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/text/chat/conversation.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostLikeliest = 100, kMostStops = 16;

/// The members of a request, with their names in errors.
class Body {
 public:
  explicit Body(const std::string& text) : json_(nlohmann::json::parse(text, nullptr, false)) {
    if (!json_.is_object()) refuse("the body is not a JSON object");
  }

  /// The member; null if it is missing.
  const nlohmann::json& operator[](const char* key) const {
    static const nlohmann::json null;
    const auto found = json_.find(key);
    return found == json_.end() ? null : *found;
  }
  bool has(const char* key) const { return !(*this)[key].is_null(); }

  bool flag(const char* key, bool otherwise) const {
    const nlohmann::json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(key, ": wanted true or false");
    return value;
  }
  double real(const char* key, double otherwise, double least, double most) const {
    const nlohmann::json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    if (!value.is_number() || !(value >= least && value <= most))
      refuse(key, ": wanted a number from ", least, " to ", most);
    return value;
  }
  std::int64_t whole(const char* key, std::int64_t otherwise, std::int64_t least,
                     std::int64_t most) const {
    const nlohmann::json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    if (!value.is_number_integer() || value < least || value > most)
      refuse(key, ": wanted a whole number from ", least, " to ", most);
    return value;
  }
  /// Refuses a value other than the one that changes nothing.
  void only(const char* key, const nlohmann::json& plain) const {
    const nlohmann::json& value = (*this)[key];
    if (!value.is_null() && value != plain) refuse(key, ": only ", plain.dump(), " is supported");
  }

 private:
  nlohmann::json json_;
};

std::vector<std::string> texts_of(const nlohmann::json& value, const char* key) {
  std::vector<std::string> texts;
  for (const nlohmann::json& each : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      refuse(key, ": wanted a text, or a list of texts, none empty");
    texts.push_back(each);
  }
  return texts;
}

bool is_tokens(const nlohmann::json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

/// A prompt: a text, which gets the begin-of-text token, or tokens as they are.
std::vector<std::int32_t> prompt_of(const nlohmann::json& value, const ServedModel& model) {
  std::vector<std::int32_t> tokens;
  if (value.is_string()) {
    tokens = model.tokenizer->encode_prompt(value.get_ref<const std::string&>());
    const auto end = model.tokenizer->end_of_text();
    if (tokens.empty() && end) tokens.push_back(*end);
    if (tokens.empty()) refuse("prompt: it is empty");
    return tokens;
  }
  if (!is_tokens(value)) refuse("prompt: wanted a text, a list of tokens, or a list of either");
  for (const nlohmann::json& token : value) {
    if (!token.is_number_integer() || token < 0 || token >= model.vocab)
      refuse("prompt: wanted tokens from 0 to ", model.vocab - 1, ", got ", token.dump());
    tokens.push_back(token);
  }
  return tokens;
}

/// What completions and chats have in common.
void read_common(const Body& body, const ServedModel& model, CompletionRequest& request) {
  GenerationOptions& options = request.options;
  options.sampling = {.temperature = body.real("temperature", 1, 0, 100),
                      .top_k = std::max<std::int64_t>(body.whole("top_k", 0, -1, 1 << 30), 0),
                      .top_p = body.real("top_p", 1, 0, 1),
                      .repetition_penalty = body.real("repetition_penalty", 1, 1e-3, 1e3)};
  if (options.sampling.top_p == 0) options.sampling = {.temperature = 0};
  std::random_device random;  // without a seed, each request is drawn independently
  options.seed = body.has("seed") ? static_cast<std::uint64_t>(body.whole(
                                        "seed", 0, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max()))
                                  : std::uint64_t{random()} << 32 | random();
  if (body.has("stop")) options.stop_strings = texts_of(body["stop"], "stop");
  if (std::ssize(options.stop_strings) > kMostStops)
    refuse("stop: ", options.stop_strings.size(), " texts, more than ", kMostStops);
  if (const auto end = model.tokenizer->end_of_text()) options.stop_tokens.push_back(*end);
  request.copies = body.whole("n", 1, 1, model.most_prompts);
  request.stream = body.flag("stream", false);
  const nlohmann::json& stream_options = body["stream_options"];
  request.stream_usage = stream_options.is_object() && stream_options.value("include_usage", false);
  for (const char* key : {"presence_penalty", "frequency_penalty"}) body.only(key, 0);
  body.only("logit_bias", nlohmann::json::object());
  body.only("response_format", {{"type", "text"}});
}

/// Checks that the prompts fit, and what is to be generated after them.
void check(const ServedModel& model, CompletionRequest& request) {
  if (std::ssize(request.prompts) * request.copies > model.most_prompts)
    refuse("prompt: ", request.prompts.size(), " prompts, each ", request.copies,
           " times, are more than ", model.most_prompts);
  for (const auto& prompt : request.prompts)
    if (std::ssize(prompt) > model.context)
      refuse("the prompt has ", prompt.size(), " tokens, but the context has only ", model.context);
  if (request.stream && request.options.likeliest >= 0)
    refuse("logprobs: not supported with stream");
}

}  // namespace

CompletionRequest parse_completion(const std::string& text, const ServedModel& model) {
  const Body body(text);
  CompletionRequest request;
  const nlohmann::json& prompt = body["prompt"];
  if (prompt.is_array() && !is_tokens(prompt))
    for (const nlohmann::json& each : prompt) request.prompts.push_back(prompt_of(each, model));
  else
    request.prompts.push_back(prompt_of(prompt, model));
  if (request.prompts.empty()) refuse("prompt: an empty list");
  read_common(body, model, request);
  request.echo = body.flag("echo", false);
  GenerationOptions& options = request.options;
  if (!body["logprobs"].is_boolean())  // a number; chats have a flag
    options.likeliest = body.whole("logprobs", -1, 0, kMostLikeliest);
  options.score_prompt = request.echo && options.likeliest >= 0;
  options.max_tokens = body.whole("max_tokens", std::min<std::int64_t>(16, model.most_tokens),
                                  options.score_prompt ? 0 : 1, model.most_tokens);
  // Whoever scores a text asks for one more token and counts on it.
  if (options.score_prompt && options.max_tokens == 1) options.stop_tokens.clear();
  body.only("best_of", request.copies);
  body.only("suffix", "");
  check(model, request);
  return request;
}

CompletionRequest parse_chat_completion(const std::string& text, const ServedModel& model) {
  const Body body(text);
  if (!model.chat)
    refuse(
        "the model has no chat template; start the server with --chat-template, or ask "
        "/v1/completions");
  CompletionRequest request{.chat = true};
  const std::optional<jinja::Value> value = parse_chat_json(text);
  if (!value || !value->dict()) refuse("the body is not a JSON object");
  request.prompts.push_back(model.chat->prompt(Conversation::parse(*value->dict(), "the request")));
  read_common(body, model, request);
  GenerationOptions& options = request.options;
  if (body.flag("logprobs", false)) options.likeliest = body.whole("top_logprobs", 0, 0, 20);
  const std::int64_t room =
      std::max<std::int64_t>(1, model.context - std::ssize(request.prompts[0]));
  const char* const limit = body.has("max_tokens") ? "max_tokens" : "max_completion_tokens";
  options.max_tokens = body.whole(limit, std::min(room, model.most_tokens), 1, model.most_tokens);
  const std::vector<std::int32_t>& end = model.chat->end_of_turn();
  if (end.size() == 1)
    options.stop_tokens.push_back(end.front());
  else if (!end.empty())
    options.stop_strings.push_back(model.tokenizer->decode(end));
  check(model, request);
  return request;
}

std::vector<std::int32_t> parse_tokenize(const std::string& text, const ServedModel& model) {
  const Body body(text);
  if (!body["prompt"].is_string()) refuse("prompt: wanted a text");
  const std::string prompt = body["prompt"];
  return body.flag("add_special_tokens", true) ? model.tokenizer->encode_prompt(prompt)
                                               : model.tokenizer->encode(prompt);
}

}  // namespace axonn
