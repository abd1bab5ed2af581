#include "axonn/app/serve/api_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "axonn/app/serve/form_request.h"
#include "axonn/app/serve/request_body.h"
#include "axonn/app/serve/request_keys.h"
#include "axonn/data/text/chat/conversation.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostLikeliest = 100;
constexpr std::size_t kMostStops = 16, kMostStopTokens = 1000, kMostBiases = 1000;
constexpr std::size_t kLongestStop = 1000;  // bytes; each prompt has a copy
// The time to find the borders of the assistant's turns grows with the square of their number.
constexpr std::size_t kMostMessages = 8192;

std::vector<std::string> read_stop_texts(const nlohmann::json& value) {
  std::vector<std::string> texts;
  const auto add = [&](const nlohmann::json& each) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      reject_key("stop", "wanted a text, or a list of texts, none empty");
    texts.push_back(each);
    if (texts.back().size() > kLongestStop)
      reject_key("stop", "a text has more than ", kLongestStop, " bytes");
  };
  if (!value.is_array()) {
    add(value);
    return texts;
  }
  if (value.size() > kMostStops) reject_key("stop", value.size(), " texts, more than ", kMostStops);
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

/// Adds a prompt: a text, which gets the begin-of-text token, or tokens as they are. `key`: the
/// prompt's.
void add_prompt(const RequestBody& body, const char* key, const nlohmann::json& value,
                const ServedModel& model, CompletionRequest& request) {
  std::vector<std::int32_t> tokens;
  if (value.is_string()) {
    tokens = model.tokenizer->encode_prompt(value.get_ref<const std::string&>());
    const auto end = model.tokenizer->end_of_text();
    if (tokens.empty() && end) tokens.push_back(*end);
    if (tokens.empty()) reject_key(key, "it is empty");
  } else if (is_tokens(value)) {
    tokens = body.tokens(key, value, model.vocab);
  } else {
    reject_key(key, "wanted a text, a list of tokens, or a list of either");
  }
  if (request.echo)
    request.echoes.push_back(value.is_string() ? value.get<std::string>() : text_of(tokens, model));
  request.prompts.push_back(std::move(tokens));
}

/// Adds the prompts: one, or a list of them.
void add_prompts(const RequestBody& body, const char* key, const ServedModel& model,
                 CompletionRequest& request) {
  const nlohmann::json& prompt = body[key];
  const bool several = prompt.is_array() && !is_tokens(prompt);
  if (several && std::ssize(prompt) > model.most_prompts)
    reject_key(key, prompt.size(), " prompts are more than ", model.most_prompts,
               " (axonn serve --max-prompts)");
  if (several)
    for (const nlohmann::json& each : prompt) add_prompt(body, key, each, model, request);
  else
    add_prompt(body, key, prompt, model, request);
  if (request.prompts.empty()) reject_key(key, "it is an empty list");
}

bool wants_usage(const RequestBody& body) {
  const nlohmann::json& options = body["stream_options"];
  if (options.is_null()) return false;
  const auto found = options.find("include_usage");
  if (!options.is_object() || (found != options.end() && !found->is_boolean()))
    reject_key("stream_options", "wanted an object such as {\"include_usage\": true}");
  return found != options.end() && *found;
}

/// The most tokens generated for a prompt.
std::int64_t limit_in(const RequestBody& body, const char* key, std::int64_t otherwise,
                      std::int64_t least, const ServedModel& model) {
  return body.whole(key, std::min(otherwise, model.most_tokens), least, model.most_tokens,
                    ", which is the server's limit (axonn serve --max-tokens)");
}

/// The most tokens of a chat's answer: by default all that the context has room for.
std::int64_t chat_limit(const RequestBody& body, const ServedModel& model,
                        const CompletionRequest& request) {
  constexpr const char *kOld = "max_tokens", *kNew = "max_completion_tokens";
  const std::int64_t room =
      std::max<std::int64_t>(1, model.context - std::ssize(request.prompts[0]));
  const std::int64_t limit = limit_in(body, body.has(kNew) ? kNew : kOld, room, 1, model);
  if (body.has(kNew) && body.has(kOld) && limit != limit_in(body, kOld, room, 1, model))
    reject_key(kNew, "it differs from max_tokens, which is its old name; send one of them");
  return limit;
}

/// A chat's answer also ends where the assistant's turn does.
void end_with_turn(const RequestBody& body, const ServedModel& model, GenerationOptions& options) {
  const std::vector<std::int32_t>& end = model.chat->end_of_turn();
  if (end.empty() || body.flag("ignore_eos", false)) return;
  if (end.size() == 1)
    options.stop_tokens.push_back(end.front());
  else if (options.min_tokens > 0)
    reject_key("min_tokens", "not supported, because this model's turns end with plain text");
  else
    options.stop_strings.push_back(model.tokenizer->decode(end));
}

/// Whether a chat's prompt ends with the beginning of a thought.
bool ends_in_thought(std::string_view prompt) {
  return prompt.substr(0, prompt.find_last_not_of(" \n") + 1).ends_with("<think>");
}

void read_stops(const RequestBody& body, const ServedModel& model, GenerationOptions& options) {
  if (body.has("stop")) options.stop_strings = read_stop_texts(body["stop"]);
  if (!body.flag("ignore_eos", false)) {
    options.stop_tokens = model.stop_tokens;
    if (const auto end = model.tokenizer->end_of_text()) options.stop_tokens.push_back(*end);
  }
  if (!body.has("stop_token_ids")) return;
  const auto tokens = body.tokens("stop_token_ids", body["stop_token_ids"], model.vocab);
  if (tokens.size() > kMostStopTokens)
    reject_key("stop_token_ids", tokens.size(), " tokens, more than ", kMostStopTokens);
  options.stop_tokens.insert(options.stop_tokens.end(), tokens.begin(), tokens.end());
}

/// Reads {"TOKEN": number to add to its logit}.
void read_biases(const nlohmann::json& biases, const ServedModel& model,
                 GenerationOptions& options) {
  constexpr const char* kKey = "logit_bias";
  constexpr double kMost = 100;
  if (biases.is_null()) return;
  if (!biases.is_object()) reject_key(kKey, "wanted an object such as {\"50256\": -100}");
  if (biases.size() > kMostBiases)
    reject_key(kKey, biases.size(), " tokens, more than ", kMostBiases);
  for (const auto& [name, bias] : biases.items()) {
    std::int32_t token = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), token);
    if (read.ptr != name.data() + name.size() || read.ec != std::errc() || token < 0 ||
        token >= model.vocab)
      reject_key(kKey, "wanted tokens from \"0\" to \"", model.vocab - 1, "\", got \"",
                 printable(name.substr(0, 20)), '"');
    if (!bias.is_number() || !(bias >= -kMost && bias <= kMost))
      reject_key(kKey, "wanted numbers from ", -kMost, " to ", kMost);
    options.logit_bias.emplace_back(token, bias.get<float>());
  }
}

/// Reads the fields that completions and chats have in common.
void read_common(const RequestBody& body, const ServedModel& model, CompletionRequest& request) {
  GenerationOptions& options = request.options;
  constexpr double kMost = 2;  // of OpenAI's penalties
  options.sampling = {
      .temperature = body.real("temperature", 1, 0, kMostTemperature),
      .top_k = std::max<std::int64_t>(body.whole("top_k", 0, -1, 1 << 30), 0),
      .top_p = body.real("top_p", 1, 0, 1),
      .repetition_penalty = body.real("repetition_penalty", 1, kLeastPenalty, kMostPenalty),
      .min_p = body.real("min_p", 0, 0, 1),
      .presence_penalty = body.real("presence_penalty", 0, -kMost, kMost),
      .frequency_penalty = body.real("frequency_penalty", 0, -kMost, kMost)};
  options.min_tokens = body.whole("min_tokens", 0, 0, model.most_tokens);
  read_biases(body["logit_bias"], model, options);
  std::random_device random;  // without a seed, each request is drawn independently
  options.seed = body.has("seed") ? static_cast<std::uint64_t>(body.whole(
                                        "seed", 0, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max()))
                                  : std::uint64_t{random()} << 32 | random();
  read_stops(body, model, options);
  request.copies = request.answers = body.whole("n", 1, 1, model.most_prompts);
  request.stream = body.flag("stream", false);
  request.stream_usage = wants_usage(body);
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
  // A beam search keeps the log-probabilities of all texts that go on.
  const std::int64_t kept = options.likeliest < 0 ? 1 : options.beams.beams;
  request.values = std::max(request.texts(), kept) * tokens * each;
  if (request.values <= model.most_values) return;
  const char* scores = request.chat() ? "top_logprobs" : "logprobs";
  reject_key("max_tokens", "the answer could have ", request.texts() * tokens, " tokens",
             request.scored ? concat(" with ", each - 1, " log-probabilities each") : "", ", ",
             request.values, " values, more than ", model.most_values,
             " (axonn serve --max-answer); lower max_tokens, ",
             request.scored ? concat("n or ", scores) : "or n", ", or send fewer prompts at once");
}

void check_context(const char* key, const ServedModel& model, const CompletionRequest& request) {
  for (const auto& prompt : request.prompts)
    if (std::ssize(prompt) > model.context)
      throw RequestError(key,
                         concat("the prompt has ", prompt.size(),
                                " tokens, but the context has only ", model.context),
                         "context_length_exceeded");
}

/// Reads how many texts are generated of which the answer has the likeliest, and whether it has
/// scores.
void read_best_of(const RequestBody& body, const ServedModel& model, CompletionRequest& request) {
  constexpr const char* kBestOf = "best_of";
  request.scored = request.options.likeliest >= 0;
  request.copies = body.whole(kBestOf, request.answers, 1, model.most_prompts);
  if (request.copies == request.answers) return;
  if (request.copies < request.answers) reject_key(kBestOf, "it is less than n, ", request.answers);
  if (body.flag("use_beam_search", false)) return;
  if (request.stream)
    reject_key(kBestOf, "not supported in a stream: the likeliest text is known at the end");
  request.options.likeliest = std::max<std::int64_t>(request.options.likeliest, 0);
}

/// The value of early_stopping: false, true or "never", as in transformers.
EarlyStopping early_stopping(const nlohmann::json& value) {
  if (value.is_null() || value == false) return EarlyStopping::no;
  if (value == true) return EarlyStopping::yes;
  if (value != "never") reject_key("early_stopping", "wanted false, true or \"never\"");
  return EarlyStopping::never;
}

/// Reads use_beam_search and what belongs to it: the beams are best_of, or else n, and the answer
/// has n texts.
void read_beams(const RequestBody& body, const ServedModel& model, CompletionRequest& request) {
  constexpr const char *kSearch = "use_beam_search", *kPenalty = "length_penalty";
  GenerationOptions& options = request.options;
  if (!body.flag(kSearch, false)) {
    for (const auto& [key, plain] :
         {std::pair{kPenalty, nlohmann::json(1)}, {"early_stopping", nlohmann::json(false)}})
      if (body.has(key) && body[key] != plain)
        reject_key(key, "it needs \"use_beam_search\": true");
    return;
  }
  options.beams = {
      .beams = std::exchange(request.copies, 1),
      .returned = request.answers,
      .length_penalty = body.real(kPenalty, 1, -kMostLengthPenalty, kMostLengthPenalty),
      .early_stopping = early_stopping(body["early_stopping"])};
  if (options.beams.beams < 2)
    reject_key(kSearch,
               "it needs beams: n, or best_of if the answer has fewer texts, of 2 or more");
  if (options.beams.beams > model.most_beams)
    reject_key(kSearch, options.beams.beams, " beams, but the server has room for ",
               model.most_beams, " (axonn serve --batch)");
  const Sampling& sampling = options.sampling;
  for (const auto& [key, draws] :
       {std::pair{"temperature", sampling.temperature != 0 && sampling.temperature != 1},
        {"top_k", sampling.top_k > 0},
        {"top_p", sampling.top_p != 1},
        {"min_p", sampling.min_p != 0}})
    if (draws) reject_key(key, "a beam search draws no tokens; leave it out");
  options.sampling.temperature = 0;
}

/// Refuses what a beam search cannot have.
void check_beams(const ServedModel& model, const CompletionRequest& request) {
  const GenerationOptions& options = request.options;
  const std::int64_t ends = std::ssize(options.stop_tokens);
  if (options.beams.beams + ends > std::min(model.vocab, model.tokenizer->vocab_size()))
    reject_key("use_beam_search", options.beams.beams, " beams and ", ends,
               " end tokens are more than the model has tokens");
  for (const auto& [what, is_set] : {std::pair{"echo and logprobs", options.score_prompt},
                                     {"max_tokens of 0", options.max_tokens == 0}})
    if (is_set) reject_key("use_beam_search", "not supported with ", what);
}

/// Checks that the prompts fit. `key`: theirs.
void check(const char* key, const ServedModel& model, CompletionRequest& request) {
  if (request.searches()) check_beams(model, request);
  if (request.options.min_tokens > request.options.max_tokens)
    reject_key("min_tokens", "it is more than max_tokens, ", request.options.max_tokens);
  const std::int64_t times = std::max(request.copies, request.options.beams.beams);
  if (std::ssize(request.prompts) * times > model.most_prompts)
    reject_key(key, request.prompts.size(), " prompts, each ", times, " times, are more than ",
               model.most_prompts, " (axonn serve --max-prompts)");
  check_context(key, model, request);
  count_values(model, request);
}

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

/// Whether what the assistant has said ends within a thought.
bool begins_thought(std::string_view said) {
  const std::size_t begin = said.rfind("<think>"), end = said.rfind("</think>");
  return begin != said.npos && (end == said.npos || end < begin);
}

/// Whether the answer goes on with the last message, which is the assistant's.
bool continues_message(const RequestBody& body) {
  constexpr const char *kContinue = "continue_final_message", *kPrompt = "add_generation_prompt";
  const bool goes_on = body.flag(kContinue, false), prompted = body.flag(kPrompt, !goes_on);
  if (goes_on && prompted)
    reject_key(kContinue, "it needs \"add_generation_prompt\": false, or nothing");
  if (!goes_on && !prompted)
    reject_key(kPrompt, "false is supported with \"continue_final_message\": true alone");
  return goes_on;
}

/// Gives the template how much the model shall think. What chat_template_kwargs say counts.
void add_reasoning_effort(const RequestBody& body, const jinja::Value& value,
                          const ServedModel& model, Conversation& conversation) {
  constexpr const char* kEffort = "reasoning_effort";
  const nlohmann::json& effort = body[kEffort];
  if (effort.is_null()) return;
  if (!effort.is_string()) reject_key(kEffort, "wanted a text, such as \"low\"");
  if (!model.chat->mentions(kEffort)) {
    if (effort == "none") return;
    reject_key(kEffort, "the model's chat template does not read it");
  }
  conversation.variables.insert(conversation.variables.begin(),
                                {kEffort, *value.dict()->find(kEffort)});
}

/// Reads a chat's messages and tools, and finds how its answer may write calls of them.
void read_conversation(const RequestBody& body, const std::string& text, const ServedModel& model,
                       CompletionRequest& request) {
  const std::optional<jinja::Value> value = parse_chat_json(text);
  if (!value) refuse("the body is not JSON that a chat template can read");
  Conversation conversation = Conversation::parse(*value->dict(), "the request");
  if (conversation.messages.size() > kMostMessages)
    reject_key("messages", conversation.messages.size(), " messages, more than ", kMostMessages);
  conversation.normalize();
  conversation.now = local_time(model.clock());
  const nlohmann::json& choice = body["tool_choice"];
  if (choice == "none")
    std::erase_if(conversation.variables, [](const auto& one) { return one.first == "tools"; });
  const bool tools = !body["tools"].empty() && choice != "none";
  request.form = find_answer_form(model.chat->source(tools));
  if (!tools) request.form.calls = AnswerForm::Calls::none;
  request.single_call = !body.flag("parallel_tool_calls", true);
  for (const std::string_view marker : request.form.markers())
    if (const auto token = model.tokenizer->added_token(marker))
      request.options.shown_tokens.push_back(*token);
  add_reasoning_effort(body, *value, model, conversation);
  const bool goes_on = continues_message(body);
  request.prompts.push_back(goes_on ? model.chat->begun(conversation)
                                    : model.chat->prompt(conversation));
  const std::string said =
      goes_on ? conversation.text(conversation.messages.size() - 1, "content") : "";
  request.in_thought =
      request.form.thinks &&
      (goes_on ? begins_thought(said) : ends_in_thought(text_of(request.prompts[0], model)));
  RequestedForm form = requested_form(body, text);
  const RequestedForm calls =
      wanted_calls(body, text, request.form.calls,
                   model.chat->source(tools).find("[ARGS]") != std::string::npos);
  if (!calls.key.empty() && !form.key.empty())
    reject_key(form.key, "not supported beside the tool_choice that wants a call");
  if (!calls.key.empty()) form = calls;
  request.options.form = checked_form(form, request.in_thought);
}

}  // namespace

CompletionRequest parse_completion(const std::string& text, const ServedModel& model) {
  const RequestBody body(text);
  CompletionRequest request{.echo = body.flag("echo", false)};
  request.unknown_keys = check_keys(body, RequestKind::completion);
  add_prompts(body, "prompt", model, request);
  read_common(body, model, request);
  GenerationOptions& options = request.options;
  if (body["logprobs"] != false)  // a number; true is for chats
    options.likeliest = body.whole("logprobs", -1, 0, kMostLikeliest);
  options.score_prompt = request.echo && options.likeliest >= 0;
  options.max_tokens = limit_in(body, "max_tokens", 16, 0, model);
  // Whoever scores a text asks for one more token and counts on it.
  if (options.score_prompt && options.max_tokens == 1) options.stop_tokens.clear();
  read_best_of(body, model, request);
  read_beams(body, model, request);
  body.only("suffix", "");
  options.form = checked_form(requested_form(body, text), false);
  check("prompt", model, request);
  return request;
}

CompletionRequest parse_chat_completion(const std::string& text, const ServedModel& model) {
  const RequestBody body(text);
  if (!model.chat)
    refuse(
        "the model has no chat template; start the server with --chat-template, or ask "
        "/v1/completions");
  CompletionRequest request{.kind = RequestKind::chat};
  request.unknown_keys = check_keys(body, RequestKind::chat);
  read_common(body, model, request);
  read_conversation(body, text, model, request);
  GenerationOptions& options = request.options;
  const std::int64_t likeliest = body.whole("top_logprobs", 0, 0, 20);
  if (body.flag("logprobs", false))
    options.likeliest = likeliest;
  else if (likeliest > 0)
    reject_key("top_logprobs", "it needs \"logprobs\": true");
  request.scored = options.likeliest >= 0;
  read_beams(body, model, request);
  options.max_tokens = chat_limit(body, model, request);
  end_with_turn(body, model, options);
  check("messages", model, request);
  return request;
}

CompletionRequest parse_embeddings(const std::string& text, const ServedModel& model) {
  constexpr const char *kFormat = "encoding_format", *kPooling = "pooling", *kInput = "input";
  const RequestBody body(text);
  if (model.width < 1) refuse("the model gives no embeddings");
  CompletionRequest request{.kind = RequestKind::embedding};
  request.unknown_keys = check_keys(body, request.kind);
  if (body[kInput] == "") reject_key(kInput, "it is an empty text");
  add_prompts(body, kInput, model, request);
  check_context(kInput, model, request);
  request.values = std::ssize(request.prompts) * model.width;
  if (request.values > model.most_values)
    reject_key(kInput, request.prompts.size(), " embeddings of ", model.width, " values each, ",
               request.values, " values, are more than ", model.most_values,
               " (axonn serve --max-answer); send fewer texts at once");
  request.base64 = body.choice(kFormat, {"float", "base64"}) == 1;
  request.options.max_tokens = 0;
  request.options.pooling =
      body.choice(kPooling, {"mean", "last"}) == 0 ? Pooling::mean : Pooling::last;
  return request;
}

std::vector<std::int32_t> parse_tokenize(const std::string& text, const ServedModel& model) {
  const RequestBody body(text);
  if (!body["prompt"].is_string()) reject_key("prompt", "wanted a text");
  const std::string prompt = body["prompt"];
  return body.flag("add_special_tokens", true) ? model.tokenizer->encode_prompt(prompt)
                                               : model.tokenizer->encode(prompt);
}

std::string parse_detokenize(const std::string& text, const ServedModel& model) {
  const RequestBody body(text);
  return text_of(body.tokens("tokens", body["tokens"], model.vocab), model);
}

}  // namespace axonn
