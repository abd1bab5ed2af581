#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/app/serve/api_request.h"

namespace axonn {

/// Fields that all answers to a request share.
struct AnswerHead {
  const ServedModel& model;
  const CompletionRequest& request;
  std::string id;            ///< "cmpl-..."
  std::int64_t created = 0;  ///< seconds since 1970
};

/// Tokens of an answer.
struct AnswerUsage {
  std::int64_t generated = 0;
  std::int64_t cached = 0;  ///< of the prompts, each counted once: not computed again
};

/// New in a choice of an answer, or all of it.
struct ChoiceNews {
  std::size_t index = 0;  ///< of the choice
  AnswerParts parts;
  // If the request asks for scores:
  std::vector<std::int32_t> tokens = {};
  std::vector<std::int64_t> offsets = {};  ///< characters of the text before each token
  std::vector<TokenScore> scores = {};     ///< of the last tokens
  std::optional<FinishReason> end = {};    ///< why the choice ended, if it has

  void append(ChoiceNews more);
};

/// The bytes of a token in an answer's text. A generated token that is special has none.
std::string_view text_bytes(const ServedModel& model, std::int32_t token, bool generated);

/// The whole answer: its beginning, each choice in turn, and its end.
std::string answer_begin(const AnswerHead& head);
std::string answer_choice(const AnswerHead& head, const ChoiceNews& choice);
std::string answer_end(const AnswerHead& head, const AnswerUsage& usage);

/// The first event of a chat's choice, which says whose message it is; "data: {...}\n\n".
std::string stream_begin(const AnswerHead& head, std::size_t index);
/// News of a choice: an event with them, if there are any, and one for its end. `called`: whether
/// the choice calls tools.
std::string stream_news(const AnswerHead& head, const ChoiceNews& news, bool called);
/// The end of the stream: the count of tokens, if the request asks for it, and [DONE].
std::string stream_done(const AnswerHead& head, const AnswerUsage& usage);
/// An error in the middle of a stream.
std::string stream_fault(const std::string& why);

}  // namespace axonn
