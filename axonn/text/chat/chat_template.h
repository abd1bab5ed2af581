#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/text/tokenizer.h"

namespace axonn {

/// The format of the conversations that a model was trained on.
enum class ChatKind { chatml, llama3, llama2 };

struct ChatFormat {
  ChatKind kind = ChatKind::chatml;
  bool begins = true;  ///< a conversation starts with the begin-of-text token
  /// Text before the system message, even if there is none (Llama 3.1's dates); or empty.
  std::string preamble = {};
  /// The system message of a conversation that has none; or empty.
  std::string default_system = {};
};

/// The values of data.chat_template other than "auto".
inline constexpr std::string_view kChatTemplates = "chatml, llama3, llama3.1, llama2";

/// Finds a chat format by name: one of kChatTemplates, or "auto". "auto" recognises the template
/// beside the tokenizer (chat_template.jinja, or chat_template in tokenizer_config.json) by the
/// special tokens that it writes, and for chatml takes over its default system message (Qwen's);
/// for the tokenizer "bytes" it is chatml. Templates are not executed. Throws UsageError for an
/// unknown name or template, or if there is no template.
///
///   chatml    <|im_start|>ROLE\nTEXT<|im_end|>\n
///   llama3    <|begin_of_text|><|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
///   llama3.1  the same, with a system message that states the template's default dates
///   llama2    <s>[INST] <<SYS>>\nTEXT\n<</SYS>>\n\nTEXT [/INST] TEXT </s>
ChatFormat find_chat_format(const std::string& name, const std::string& tokenizer);

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
  Rendered render(std::span<const Message> messages) const { return write(messages, false); }

  /// The tokens of a conversation up to the start of the assistant's next message. Throws
  /// UsageError with the message of fault().
  std::vector<std::int32_t> prompt(std::span<const Message> messages) const {
    return write(messages, true).tokens;
  }

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
  Rendered write(std::span<const Message> messages, bool prompted) const;
  void turns(std::span<const Message> messages, bool prompted, Writer& to) const;
  void llama2(std::span<const Message> messages, Writer& to) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatFormat format_;
  std::vector<std::int32_t> begin_, end_of_turn_;
  std::vector<std::int32_t> open_, close_;  // of a header
};

}  // namespace axonn
