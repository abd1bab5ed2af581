#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/app/serve/answer_writer.h"
#include "axonn/app/serve/character_count.h"
#include "axonn/app/serve/engine.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// An answer under way: it collects what the prompts' streams bring. Made by a request's thread and
/// used by it alone.
class Answer {
 public:
  /// `streams`: of the request's prompts with their copies, in order; of a beam search one a
  /// prompt. `room`: held for as long as the answer exists.
  Answer(const ServedModel& model, CompletionRequest request,
         std::vector<std::shared_ptr<TextStream>> streams, std::shared_ptr<void> room);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// The next piece to send; "" if there is nothing new, none at the end.
  std::optional<std::string> next();

 private:
  /// A token with its bytes in the text that the model writes.
  struct PlacedToken {
    std::int32_t token = 0;
    TokenScore score;
    ByteRange bytes;
  };
  struct Choice {
    std::shared_ptr<TextStream> stream;  // null after its end
    AnswerSplitter splitter;             // of a chat
    ChoiceNews whole;                    // unless the answer is a stream
    bool begun = false;
    std::int64_t offset = 0;  // characters before the next token
    CharacterCount characters = {};
    /// Of a response: tokens whose position in the answer is not known yet, and the bytes of all.
    std::deque<PlacedToken> unplaced = {};
    std::size_t bytes = 0;
    DecodeOptions decoding = {};
    double log_probability = 0;  // of the generated tokens, if they are scored
    std::int64_t scored = 0;     // of them
    /// The mean log-probability of its tokens; lowest without any.
    double likelihood() const;
  };
  std::string taken(std::size_t number, TextStream::Event event);
  void echo(Choice& choice, Generation& generation, ChoiceNews& news);
  void add_tokens(Choice& choice, const std::vector<std::int32_t>& tokens, bool generated,
                  ChoiceNews& news);
  void place_tokens(Choice& choice, Generation& generation);
  void take_placed(Choice& choice, ChoiceNews& news);
  void keep_likeliest();
  std::string last();
  std::string whole();
  std::string fault(const std::string& why);

  const ServedModel& model_;
  CompletionRequest request_;
  std::shared_ptr<void> room_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;
  std::size_t open_, written_ = 0;  // choices that have not ended, and that were written
  AnswerUsage usage_;
  bool begun_ = false, over_ = false;
};

}  // namespace axonn
