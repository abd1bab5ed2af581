#pragma once

#include <string>
#include <string_view>

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

}  // namespace axonn
