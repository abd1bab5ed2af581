#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axonn/app/serve/answer_parts.h"
#include "axonn/data/text/chat/chat_template.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

/// A model of a server, with the limits of its requests.
struct ServedModel {
  std::string name;
  std::int64_t adapter = -1;  ///< of the generator's, with which it computes; -1: none
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;  ///< null: it has no chat template
  std::int64_t vocab = 0, context = 0;
  std::int64_t width = 0;           ///< of embeddings; 0: the model gives none
  std::int64_t most_tokens = 4096;  ///< generated for a prompt
  std::int64_t most_prompts = 256;  ///< of a request, its copies or beams included
  std::int64_t most_beams = 1;      ///< of a prompt
  /// Tokens and log-probabilities of an answer, all its texts together. Each takes up to about 100
  /// bytes while the answer is written.
  std::int64_t most_values = std::int64_t{1} << 20;
  std::vector<std::int32_t> stop_tokens = {};  ///< that end a text besides the tokenizer's
  std::function<std::time_t()> clock = [] { return std::time(nullptr); };
  std::function<void(const std::string&)> note = {};  ///< shows whoever runs the server a note
};

/// The kinds of requests that a model computes something for.
enum class RequestKind : unsigned char {
  completion = 1,
  chat = 2,
  embedding = 4,
  response = 8,
  message = 16
};

/// A request of OpenAI's API for completions, chat completions, responses or embeddings, or of
/// Anthropic's for messages.
struct CompletionRequest {
  RequestKind kind = RequestKind::completion;
  std::vector<std::vector<std::int32_t>> prompts;  ///< not empty
  std::int64_t copies = 1;   ///< texts drawn after each prompt: "best_of", or "n"
  std::int64_t answers = 1;  ///< "n": of these texts, those that are in the answer, the likeliest
  bool scored = false;       ///< the answer has log-probabilities
  bool echo = false;         ///< the answer begins with the prompt
  std::vector<std::string> echoes;  ///< the prompts as texts, if `echo`
  AnswerForm form = {};             ///< of a chat's answer
  bool in_thought = false;          ///< the chat's prompt begins the answer's thought
  bool single_call = false;         ///< of several calls of tools, the answer has the first
  bool base64 = false;              ///< embeddings are written as base64 of f32, little-endian
  bool stream = false;
  bool stream_usage = false;  ///< the stream's last piece counts tokens
  std::int64_t values = 0;    ///< tokens and log-probabilities that the answer may have
  std::vector<std::string> unknown_keys = {};  ///< check_keys()
  std::string repeated = {};                   ///< members that the answer has, too, as JSON
  GenerationOptions options;

  bool searches() const { return options.beams.beams > 1; }  ///< by beams, and draws none
  /// The texts that come after each prompt, of which answers are chosen.
  std::int64_t texts() const { return searches() ? answers : copies; }
  /// Whether the answer is a message of the assistant.
  bool chat() const { return kind != RequestKind::completion && kind != RequestKind::embedding; }
};

/// Parses the body of POST /v1/completions: prompt (a text, a list of tokens, or a list of either),
/// max_tokens, temperature, top_p, n, stream, stream_options, logprobs, echo, stop, seed; and
/// top_k, repetition_penalty, stop_token_ids, ignore_eos, use_beam_search, length_penalty and
/// early_stopping, which other servers know too. Throws RequestError, also for a key that
/// check_keys() refuses.
CompletionRequest parse_completion(const std::string& body, const ServedModel& model);

/// Parses the body of POST /v1/chat/completions: messages and what the model's template reads
/// beside them, reasoning_effort, tool_choice, parallel_tool_calls, the keys above,
/// max_completion_tokens for max_tokens, and top_logprobs for logprobs. Throws UsageError, also if
/// the model has no chat template.
CompletionRequest parse_chat_completion(const std::string& body, const ServedModel& model);

/// Parses the body of POST /v1/messages, of Anthropic's API, as the same request to
/// /v1/chat/completions: messages of blocks, system, max_tokens, stop_sequences, tools,
/// tool_choice, and the keys that both have. Throws likewise.
CompletionRequest parse_messages(const std::string& body, const ServedModel& model);

/// Parses the body of POST /v1/responses as the same request to /v1/chat/completions: input (a text
/// or items), instructions, tools, tool_choice, text, reasoning, max_output_tokens, and the keys
/// that both have. Throws as parse_chat_completion(), with the names of keys here.
CompletionRequest parse_responses(const std::string& body, const ServedModel& model);

/// Parses the body of POST /v1/embeddings: input (a text, a list of tokens, or a list of either),
/// encoding_format and pooling. Throws RequestError.
CompletionRequest parse_embeddings(const std::string& body, const ServedModel& model);

/// The tokens of `prompt` of POST /tokenize, with add_special_tokens (default true).
std::vector<std::int32_t> parse_tokenize(const std::string& body, const ServedModel& model);

/// The text of `tokens` of POST /detokenize.
std::string parse_detokenize(const std::string& body, const ServedModel& model);

}  // namespace axonn
