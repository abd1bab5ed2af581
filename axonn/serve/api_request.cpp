#include "axonn/serve/api_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string_view>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/json_extent.h"
#include "axonn/base/utf8.h"
#include "axonn/serve/http.h"
#include "axonn/text/chat/conversation.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostLikeliest = 100;
constexpr std::size_t kMostStops = 16, kMostStopTokens = 1000;
constexpr std::size_t kLongestStop = 1000;  // bytes; each prompt has a copy
// Of a body: the first is that of chats' data, the second is a few times what the longest lists of
// tokens have. A value takes up to about 200 bytes while it is read.
constexpr int kMostDepth = jinja::Value::kMostDepth;
constexpr std::int64_t kMostValues = std::int64_t{1} << 19;
// The time to find the borders of the assistant's turns grows with the square of their number.
constexpr std::size_t kMostMessages = 8192;
constexpr std::size_t kLongestShown = 200;  // bytes of a value in an error

template <typename... Parts>
[[noreturn]] void reject(const char* key, const Parts&... parts) {
  throw RequestError(key, concat(parts...));
}

/// A whole number, which some clients write as 1.0; none for another value.
std::optional<std::int64_t> whole_number(const nlohmann::json& value) {
  constexpr double kExact = 9007199254740992;  // from 2^53 on, not all whole numbers are floats
  if (value.is_number_float()) {
    const double real = value;
    if (std::trunc(real) != real || std::abs(real) > kExact) return {};
    return static_cast<std::int64_t>(real);
  }
  if (!value.is_number_integer() || value > std::numeric_limits<std::int64_t>::max()) return {};
  return value.get<std::int64_t>();
}

/// A value in an error.
std::string shown(const nlohmann::json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  const std::string text =
      value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, kLongestShown);
  return text.substr(0, valid_utf8_prefix(text));
}

/// The members of a request, with their names in errors.
class Body {
 public:
  explicit Body(const std::string& text) {
    const JsonExtent extent = json_extent(text);
    if (extent.depth > kMostDepth) refuse("the brackets of the body nest deeper than ", kMostDepth);
    if (extent.values > kMostValues)
      refuse("the body has more than ", kMostValues, " values; send several requests");
    try {
      json_ = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      const std::string_view why = error.what();  // begins with "[json.exception...] "
      refuse("the body is not JSON: ",
             printable(why.substr(std::min(why.find(']') + 2, why.size()), kLongestShown)));
    }
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
    if (!value.is_boolean()) reject(key, "wanted true or false");
    return value;
  }
  double real(const char* key, double otherwise, double least, double most) const {
    const nlohmann::json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    if (!value.is_number() || !(value >= least && value <= most))
      reject(key, "wanted a number from ", least, " to ", most);
    return value;
  }
  std::int64_t whole(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most,
                     const char* limit = "") const {
    const nlohmann::json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    const std::optional<std::int64_t> number = whole_number(value);
    if (!number || *number < least || *number > most)
      reject(key, "wanted a whole number from ", least, " to ", most, limit);
    return *number;
  }
  /// A list of tokens that the model knows.
  std::vector<std::int32_t> tokens(const char* key, const nlohmann::json& list,
                                   std::int64_t vocab) const {
    std::vector<std::int32_t> tokens;
    if (!list.is_array()) reject(key, "wanted a list of tokens");
    for (const nlohmann::json& token : list) {
      const std::optional<std::int64_t> number = whole_number(token);
      if (!number || *number < 0 || *number >= vocab)
        reject(key, "wanted tokens from 0 to ", vocab - 1, ", got ", shown(token));
      tokens.push_back(static_cast<std::int32_t>(*number));
    }
    return tokens;
  }
  /// Refuses a value other than the one that changes nothing.
  void only(const char* key, const nlohmann::json& plain) const {
    const nlohmann::json& value = (*this)[key];
    if (!value.is_null() && value != plain) reject(key, "only ", plain.dump(), " is supported");
  }

 private:
  nlohmann::json json_;
};

std::vector<std::string> read_stop_texts(const nlohmann::json& value) {
  std::vector<std::string> texts;
  const auto add = [&](const nlohmann::json& each) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      reject("stop", "wanted a text, or a list of texts, none empty");
    texts.push_back(each);
    if (texts.back().size() > kLongestStop)
      reject("stop", "a text has more than ", kLongestStop, " bytes");
  };
  if (!value.is_array()) {
    add(value);
    return texts;
  }
  if (value.size() > kMostStops) reject("stop", value.size(), " texts, more than ", kMostStops);
  std::ranges::for_each(value, add);
  return texts;
}

bool is_tokens(const nlohmann::json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

/// The text of tokens, of which the tokenizer may not know all that the model does.
std::string text_of(std::vector<std::int32_t> tokens, const ServedModel& model) {
  std::erase_if(tokens, [&](auto token) { return token >= model.tokenizer->vocab_size(); });
  return model.tokenizer->decode(tokens);
}

/// Adds a prompt: a text, which gets the begin-of-text token, or tokens as they are.
void add_prompt(const Body& body, const nlohmann::json& value, const ServedModel& model,
                CompletionRequest& request) {
  std::vector<std::int32_t> tokens;
  if (value.is_string()) {
    tokens = model.tokenizer->encode_prompt(value.get_ref<const std::string&>());
    const auto end = model.tokenizer->end_of_text();
    if (tokens.empty() && end) tokens.push_back(*end);
    if (tokens.empty()) reject("prompt", "it is empty");
  } else if (is_tokens(value)) {
    tokens = body.tokens("prompt", value, model.vocab);
  } else {
    reject("prompt", "wanted a text, a list of tokens, or a list of either");
  }
  if (request.echo)
    request.echoes.push_back(value.is_string() ? value.get<std::string>() : text_of(tokens, model));
  request.prompts.push_back(std::move(tokens));
}

bool wants_usage(const Body& body) {
  const nlohmann::json& options = body["stream_options"];
  if (options.is_null()) return false;
  const auto found = options.find("include_usage");
  if (!options.is_object() || (found != options.end() && !found->is_boolean()))
    reject("stream_options", "wanted an object such as {\"include_usage\": true}");
  return found != options.end() && *found;
}

/// The most tokens generated for a prompt.
std::int64_t limit_in(const Body& body, const char* key, std::int64_t otherwise, std::int64_t least,
                      const ServedModel& model) {
  return body.whole(key, std::min(otherwise, model.most_tokens), least, model.most_tokens,
                    ", which is the server's limit (axonn serve --max-tokens)");
}

/// Whether a chat's prompt ends with the beginning of a thought.
bool ends_in_thought(std::string_view prompt) {
  return prompt.substr(0, prompt.find_last_not_of(" \n") + 1).ends_with("<think>");
}

void read_stops(const Body& body, const ServedModel& model, GenerationOptions& options) {
  if (body.has("stop")) options.stop_strings = read_stop_texts(body["stop"]);
  if (!body.flag("ignore_eos", false)) {
    options.stop_tokens = model.stop_tokens;
    if (const auto end = model.tokenizer->end_of_text()) options.stop_tokens.push_back(*end);
  }
  if (!body.has("stop_token_ids")) return;
  const auto tokens = body.tokens("stop_token_ids", body["stop_token_ids"], model.vocab);
  if (tokens.size() > kMostStopTokens)
    reject("stop_token_ids", tokens.size(), " tokens, more than ", kMostStopTokens);
  options.stop_tokens.insert(options.stop_tokens.end(), tokens.begin(), tokens.end());
}

/// Reads the fields that completions and chats have in common.
void read_common(const Body& body, const ServedModel& model, CompletionRequest& request) {
  GenerationOptions& options = request.options;
  options.sampling = {
      .temperature = body.real("temperature", 1, 0, kMostTemperature),
      .top_k = std::max<std::int64_t>(body.whole("top_k", 0, -1, 1 << 30), 0),
      .top_p = body.real("top_p", 1, 0, 1),
      .repetition_penalty = body.real("repetition_penalty", 1, kLeastPenalty, kMostPenalty)};
  std::random_device random;  // without a seed, each request is drawn independently
  options.seed = body.has("seed") ? static_cast<std::uint64_t>(body.whole(
                                        "seed", 0, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max()))
                                  : std::uint64_t{random()} << 32 | random();
  read_stops(body, model, options);
  request.copies = body.whole("n", 1, 1, model.most_prompts);
  request.stream = body.flag("stream", false);
  request.stream_usage = wants_usage(body);
  for (const char* key : {"presence_penalty", "frequency_penalty", "min_p", "min_tokens"})
    body.only(key, 0);
  body.only("logit_bias", nlohmann::json::object());
  body.only("response_format", {{"type", "text"}});
}

/// Counts the tokens and log-probabilities that the answer may have, and checks that they are few
/// enough.
void count_values(const ServedModel& model, CompletionRequest& request) {
  const GenerationOptions& options = request.options;
  std::int64_t tokens = 0;
  for (const auto& prompt : request.prompts) {
    const std::int64_t size = std::ssize(prompt);
    tokens += std::min(options.max_tokens, model.context - size + 1) + (request.echo ? size : 0);
  }
  const std::int64_t each = 1 + std::max<std::int64_t>(options.likeliest + 1, 0);
  request.values = request.copies * tokens * each;
  if (request.values <= model.most_values) return;
  const bool scored = options.likeliest >= 0;
  const char* scores = request.chat ? "top_logprobs" : "logprobs";
  reject("max_tokens", "the answer could have ", request.copies * tokens, " tokens",
         scored ? concat(" with ", each - 1, " log-probabilities each") : "", ", ", request.values,
         " values, more than ", model.most_values,
         " (axonn serve --max-answer); lower max_tokens, ",
         scored ? concat("n or ", scores) : "or n", ", or send fewer prompts at once");
}

/// Checks that the prompts fit.
void check(const ServedModel& model, CompletionRequest& request) {
  const char* key = request.chat ? "messages" : "prompt";
  if (std::ssize(request.prompts) * request.copies > model.most_prompts)
    reject(key, request.prompts.size(), " prompts, each ", request.copies, " times, are more than ",
           model.most_prompts, " (axonn serve --max-prompts)");
  for (const auto& prompt : request.prompts)
    if (std::ssize(prompt) > model.context)
      throw RequestError(key,
                         concat("the prompt has ", prompt.size(),
                                " tokens, but the context has only ", model.context),
                         "context_length_exceeded");
  count_values(model, request);
}

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

/// Reads a chat's messages and tools, and finds how its answer may write calls of them.
void read_conversation(const Body& body, const std::string& text, const ServedModel& model,
                       CompletionRequest& request) {
  const std::optional<jinja::Value> value = parse_chat_json(text);
  if (!value) refuse("the body is not JSON that a chat template can read");
  Conversation conversation = Conversation::parse(*value->dict(), "the request");
  if (conversation.messages.size() > kMostMessages)
    reject("messages", conversation.messages.size(), " messages, more than ", kMostMessages);
  conversation.normalize();
  conversation.now = local_time(model.clock());
  const nlohmann::json& choice = body["tool_choice"];
  if (choice == "none")
    std::erase_if(conversation.variables, [](const auto& one) { return one.first == "tools"; });
  else if (!choice.is_null() && choice != "auto")
    reject("tool_choice", "only \"auto\" and \"none\" are supported");
  const bool tools = !body["tools"].empty() && choice != "none";
  request.form = find_answer_form(model.chat->source(tools));
  if (!tools) request.form.calls = AnswerForm::Calls::none;
  request.single_call = !body.flag("parallel_tool_calls", true);
  for (const std::string_view marker : request.form.markers())
    if (const auto token = model.tokenizer->added_token(marker))
      request.options.shown_tokens.push_back(*token);
  request.prompts.push_back(model.chat->prompt(conversation));
  request.in_thought = request.form.thinks && ends_in_thought(text_of(request.prompts[0], model));
}

}  // namespace

CompletionRequest parse_completion(const std::string& text, const ServedModel& model) {
  const Body body(text);
  CompletionRequest request{.echo = body.flag("echo", false)};
  const nlohmann::json& prompt = body["prompt"];
  if (prompt.is_array() && !is_tokens(prompt) && std::ssize(prompt) > model.most_prompts)
    reject("prompt", prompt.size(), " prompts are more than ", model.most_prompts,
           " (axonn serve --max-prompts)");
  if (prompt.is_array() && !is_tokens(prompt))
    for (const nlohmann::json& each : prompt) add_prompt(body, each, model, request);
  else
    add_prompt(body, prompt, model, request);
  if (request.prompts.empty()) reject("prompt", "it is an empty list");
  read_common(body, model, request);
  GenerationOptions& options = request.options;
  if (body["logprobs"] != false)  // a number; true is for chats
    options.likeliest = body.whole("logprobs", -1, 0, kMostLikeliest);
  options.score_prompt = request.echo && options.likeliest >= 0;
  options.max_tokens = limit_in(body, "max_tokens", 16, 0, model);
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
  read_common(body, model, request);
  read_conversation(body, text, model, request);
  GenerationOptions& options = request.options;
  if (body.flag("logprobs", false)) options.likeliest = body.whole("top_logprobs", 0, 0, 20);
  const std::int64_t room =
      std::max<std::int64_t>(1, model.context - std::ssize(request.prompts[0]));
  options.max_tokens = limit_in(
      body, body.has("max_tokens") ? "max_tokens" : "max_completion_tokens", room, 1, model);
  const std::vector<std::int32_t>& end = model.chat->end_of_turn();
  if (end.size() == 1)
    options.stop_tokens.push_back(end.front());
  else if (!end.empty())
    options.stop_strings.push_back(model.tokenizer->decode(end));
  for (const char* key : {"functions", "function_call"})
    if (body.has(key)) reject(key, "not supported; use tools");
  check(model, request);
  return request;
}

std::vector<std::int32_t> parse_tokenize(const std::string& text, const ServedModel& model) {
  const Body body(text);
  if (!body["prompt"].is_string()) reject("prompt", "wanted a text");
  const std::string prompt = body["prompt"];
  return body.flag("add_special_tokens", true) ? model.tokenizer->encode_prompt(prompt)
                                               : model.tokenizer->encode(prompt);
}

std::string parse_detokenize(const std::string& text, const ServedModel& model) {
  const Body body(text);
  return text_of(body.tokens("tokens", body["tokens"], model.vocab), model);
}

}  // namespace axonn
