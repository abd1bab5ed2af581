#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/text/chat/chat_format.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

/// One turn of a conversation. Roles are system, user and assistant.
struct Message {
  std::string role, content;
};

/// Encodes conversations in the format that the model expects.
///
/// The markers of a turn are added tokens of the tokenizer. Messages are always encoded as plain
/// text, so a user cannot end a turn by typing a marker. Only chatml also works without such
/// tokens, as with "bytes": its markers are then plain text.
class ChatTemplate {
 public:
  /// Throws UsageError if the tokenizer lacks the markers of the format.
  ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format);

  /// The tokens of a conversation, and whether each is learned. Those of the assistant's words are,
  /// and the end of its turn, which it must produce as well.
  struct Rendered {
    std::vector<std::int32_t> tokens;
    std::vector<bool> learned;  ///< one for each token
  };
  /// Encodes a conversation. Throws UsageError with the message of fault().
  Rendered render(std::span<const Message> messages) const;

  /// The tokens of a conversation up to the start of the assistant's next message. Throws
  /// UsageError with the message of fault().
  std::vector<std::int32_t> prompt(std::span<const Message> messages) const;

  /// The tokens that end the assistant's turn: one, unless markers are plain text.
  const std::vector<std::int32_t>& end_of_turn() const { return end_of_turn_; }

  /// Why these messages are not a conversation in this format; "" if they are. `prompted`: the
  /// assistant speaks next.
  std::string fault(std::span<const Message> messages, bool prompted) const;

  /// Templates with equal fingerprints render alike, given the same tokenizer.
  std::string fingerprint() const;

 private:
  class Writer;
  std::vector<std::int32_t> sign(std::string_view characters) const;
  void turns(std::span<const Message> messages, Writer& to) const;
  void llama2(std::span<const Message> messages, Writer& to) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatFormat format_;
  std::vector<std::int32_t> begin_, end_of_turn_;
  std::vector<std::int32_t> open_, close_;  // of a header
};

}  // namespace axonn
