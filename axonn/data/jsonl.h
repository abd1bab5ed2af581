#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/chat_template.h"

namespace axonn {

/// A line of a file of fine-tuning data: what it is to be learned from.
struct Example {
  enum class Kind {
    text,        ///< {"text": "..."}: all of it is learned
    completion,  ///< {"prompt": "...", "completion": "..."}: the completion is
    messages,    ///< {"messages": [{"role": "...", "content": "..."}, ...]}: the assistant's are
  };
  Kind kind = Kind::text;
  std::string prompt, text;  ///< text: also of a completion
  std::vector<Message> messages;
};
std::string_view name_of(Example::Kind kind);

/// Reads a line. Other keys than these are left alone. Errors: UsageError, with `place` before it,
/// if the line is no JSON object, or no UTF-8, or not exactly one of the kinds, or a value is no
/// string.
Example parse_example(std::string_view line, const std::string& place);

/// Turns examples into the tokens of a document.
class ExampleEncoder {
 public:
  /// For examples without messages.
  explicit ExampleEncoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  /// chat may be empty where no example has messages.
  ExampleEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

  /// A text, and a prompt, begin as the tokenizer's texts do; a text, and a completion, end so,
  /// which is learned too. Errors: UsageError, with `place` before it, for messages that the
  /// template refuses.
  ChatTemplate::Rendered encode(const Example& example, const std::string& place) const;

  std::string fingerprint() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace axonn
