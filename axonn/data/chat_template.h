#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/tokenizer.h"

namespace axonn {

/// One turn of a conversation. Roles are system, user and assistant.
struct Message {
  std::string role, content;
};

/// How a model was taught to read conversations.
enum class ChatKind { chatml, llama3, llama2 };

struct ChatFormat {
  ChatKind kind = ChatKind::chatml;
  bool begins = true;  ///< a conversation starts with the token that begins a text
  /// What stands before the system's words, also where it says none (Llama 3.1's dates); or empty.
  std::string preamble = {};
  /// What the system says in a conversation that does not begin with it; or empty.
  std::string default_system = {};
};

/// The names that data.chat_template takes, without "auto".
inline constexpr std::string_view kChatTemplates = "chatml, llama3, llama3.1, llama2";

/// name: one of kChatTemplates; or "auto": what chat_template.jinja, or chat_template in
/// tokenizer_config.json, beside the tokenizer is, told by the signs that it writes; for "bytes"
/// chatml. Templates are not run: those of other forms are refused, and so is a folder without one.
///
///   chatml    <|im_start|>ROLE\nTEXT<|im_end|>\n, Qwen's system where the conversation has none
///   llama3    <|begin_of_text|><|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
///   llama3.1  the same, and a system that says the dates which the template has as its own
///   llama2    <s>[INST] <<SYS>>\nTEXT\n<</SYS>>\n\nTEXT [/INST] TEXT </s>
ChatFormat find_chat_format(const std::string& name, const std::string& tokenizer);

/// Turns conversations into tokens as such a model expects them.
///
/// The signs of a turn are the tokenizer's added tokens; what stands in messages is text, whatever
/// its characters, so nobody can end a turn by typing. chatml alone also works without such tokens,
/// its signs then being text themselves: so with "bytes".
class ChatTemplate {
 public:
  /// Errors: UsageError if the tokenizer has not the signs of the format.
  ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format);

  /// A conversation, and of each token whether it is to be learned: those of the assistant's words
  /// and of the end of its turn, which it has to say as well.
  struct Rendered {
    std::vector<std::int32_t> tokens;
    std::vector<bool> learned;  ///< as many
  };
  /// Errors: UsageError, as fault() says.
  Rendered render(std::span<const Message> messages) const;

  /// A conversation up to where the assistant is to speak. Errors: UsageError, as fault() says.
  std::vector<std::int32_t> prompt(std::span<const Message> messages) const;

  /// With what the assistant ends its turn: one token, unless signs are text.
  const std::vector<std::int32_t>& end_of_turn() const { return end_of_turn_; }

  /// Why these messages are no conversation of this format; "" if they are. `prompted`: the
  /// assistant is to speak next.
  std::string fault(std::span<const Message> messages, bool prompted) const;

  /// Two that agree render alike, given the same tokenizer.
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
