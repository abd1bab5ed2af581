#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/serve/api_request.h"

namespace axonn {

/// What the answers to a request have in common.
struct AnswerHead {
  const ServedModel& model;
  const CompletionRequest& request;
  std::string id;            ///< "cmpl-..."
  std::int64_t created = 0;  ///< seconds since 1970
};

/// The whole answer, from a result for each copy of each prompt.
std::string answer_json(const AnswerHead& head, const std::vector<Generation>& results);

/// A piece of a stream: new text of choice `index`, "data: {...}\n\n". `first`: the choice's first.
std::string stream_piece(const AnswerHead& head, std::size_t index, std::string_view text,
                         bool first);
/// The end of a choice.
std::string stream_end(const AnswerHead& head, std::size_t index, FinishReason reason);
/// The end of the stream: the count of tokens, if the request asks for it, and [DONE].
std::string stream_done(const AnswerHead& head, std::int64_t generated);
/// An error in the middle of a stream.
std::string stream_fault(const std::string& why);

}  // namespace axonn
