#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/app/serve/api_request.h"
#include "axonn/app/serve/request_body.h"

namespace axonn {

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
  std::vector<float> embedding = {};       ///< (H), if the request asks for it
  std::optional<FinishReason> end = {};    ///< why the choice ended, if it has
  std::string stop = {};                   ///< the stop string, if that is why

  void append(ChoiceNews more);
};

/// Writes the answer to one request in the form of its route.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  /// The whole answer: its beginning, each choice in turn, and its end.
  virtual std::string begin() = 0;
  virtual std::string choice(const ChoiceNews& whole) = 0;
  virtual std::string end(const AnswerUsage& usage) = 0;

  /// The events before the first news of a choice.
  virtual std::string stream_begin(std::size_t index) = 0;
  /// Events with news of a choice, if there are any, and for its end.
  virtual std::string stream_news(const ChoiceNews& news) = 0;
  /// The end of the stream.
  virtual std::string stream_done(const AnswerUsage& usage) = 0;
  /// An error in the middle of a stream.
  virtual std::string stream_fault(const std::string& why) = 0;

 protected:
  AnswerWriter() = default;
};

/// The writer of the request's route. The model and the request must outlive it.
std::unique_ptr<AnswerWriter> make_answer_writer(const ServedModel& model,
                                                 const CompletionRequest& request);
/// The writers of single routes.
std::unique_ptr<AnswerWriter> make_completion_writer(const ServedModel& model,
                                                     const CompletionRequest& request);
std::unique_ptr<AnswerWriter> make_embedding_writer(const ServedModel& model,
                                                    const CompletionRequest& request);
std::unique_ptr<AnswerWriter> make_messages_writer(const ServedModel& model,
                                                   const CompletionRequest& request);
std::unique_ptr<AnswerWriter> make_responses_writer(const ServedModel& model,
                                                    const CompletionRequest& request);

/// The log-probabilities of the news' tokens as chats have them: a list of objects.
nlohmann::ordered_json chat_scores(const ServedModel& model, const ChoiceNews& news);
/// A new id: "cmpl-18a3f-1".
std::string answer_id(std::string_view prefix);
/// The id of a call of a tool: nine letters and digits, which is what Mistral's templates accept.
std::string call_id(const std::string& answer, std::size_t index, std::size_t call);
/// Whether a text ended because it had no room. A form without a token that may follow ends a text
/// before it is complete.
bool is_cut_off(FinishReason reason);
/// The tokens of the request's prompts.
std::int64_t prompt_tokens(const CompletionRequest& request);

}  // namespace axonn
