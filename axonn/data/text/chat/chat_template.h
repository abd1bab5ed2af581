#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/chat/content_parts.h"
#include "axonn/data/text/chat/conversation.h"
#include "axonn/data/text/chat/tool_arguments.h"
#include "axonn/data/text/text_steps.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// The template of the conversations that a model was trained on.
struct ChatFormat {
  struct Form {
    std::string name;  ///< "default"; or "tool_use", for conversations with tools
    std::string file;  ///< for messages
    std::string text;  ///< in Jinja
  };
  std::vector<Form> forms;
  /// Variables that hold the characters of tokens, such as bos_token.
  std::vector<std::pair<std::string, std::string>> tokens = {};
  /// Added tokens without which it cannot be used.
  std::vector<std::string> needed_tokens = {};
};

/// The folder, beside a tokenizer, of templates that have other names than "default".
inline constexpr const char* kNamedTemplates = "additional_chat_templates";

/// The values of data.chat_template other than "auto" and files.
inline constexpr std::string_view kChatTemplates = "chatml, llama3, llama3.1, llama2";

/// Finds a chat template: one of kChatTemplates, the path of a .jinja file, or "auto": the template
/// in the tokenizer's folder (chat_template.jinja and kNamedTemplates/NAME.jinja, or without such
/// files chat_template in tokenizer_config.json, a text or a list of named ones); for the tokenizer
/// "bytes" it is chatml. Throws UsageError for an unknown name, or if there is no template.
///
///   chatml    <|im_start|>ROLE\nTEXT<|im_end|>\n
///   llama3    <|begin_of_text|><|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
///   llama3.1  the same, with a system message that states the template's default dates
///   llama2    <s>[INST] <<SYS>>\nTEXT\n<</SYS>>\n\nTEXT [/INST] TEXT </s>
ChatFormat find_chat_format(const std::string& name, const std::string& tokenizer);

/// The template of "auto" and the variables for tokens in the tokenizer's folder, without forms if
/// there is no template. Throws UsageError for files that are damaged.
ChatFormat chat_format_in(const std::string& tokenizer);

/// Encodes conversations in the format that the model expects, by the model's own template.
///
/// Control tokens come from the template alone: only what the template itself writes, and the
/// variables for tokens, is searched for added tokens. What comes from messages, tools and
/// documents is plain text, so a user cannot end a turn by typing a marker. One exception: what the
/// assistant says may hold added tokens that are not special, such as "<think>".
class ChatTemplate {
 public:
  /// Throws UsageError if the template has a fault or uses what is not supported, with its
  /// location, or if the tokenizer lacks a token that the format needs.
  ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format,
               ChatArguments arguments = {});

  /// The tokens of a conversation, and whether each is learned. Those of the assistant's words are,
  /// and the end of its turn, which it must produce as well (learned_spans()).
  struct Rendered {
    std::vector<std::int32_t> tokens;
    std::vector<bool> learned;  ///< one for each token
  };
  /// Encodes a conversation. Throws UsageError, beginning with `location` if it is not empty, if
  /// the messages are none or lack an assistant's, have a role that the template does not know, or
  /// if the template refuses them, with its own words.
  Rendered render(const Conversation& conversation, const std::string& location = "") const;

  /// The tokens of a conversation up to the start of the assistant's next message. Throws as
  /// render() does, and if the last message is the assistant's.
  std::vector<std::int32_t> prompt(const Conversation& conversation,
                                   const std::string& location = "") const;

  /// The tokens of a conversation up to the last character of its last message, which the
  /// assistant goes on with, without white space at its end if the template drops that. Throws as
  /// render() does, and if the last message is not a text of the assistant, or the template does
  /// not write it as it is.
  std::vector<std::int32_t> begun(const Conversation& conversation) const;

  /// The conversation with the contents of messages, and the arguments of calls, in the form that
  /// the template reads. An object of arguments is JSON for a template that wants a text. The role
  /// developer becomes system if the template's text does not have the word "developer".
  /// render() and prompt() begin with that.
  Conversation fit_to_template(Conversation conversation) const;

  /// The text of a conversation, as transformers' apply_chat_template() returns it, with the origin
  /// of each piece. `prompted`: up to the start of the assistant's next message.
  jinja::Text text(const Conversation& conversation, bool prompted) const;

  /// The template for a conversation with tools, or without, in Jinja.
  const std::string& source(bool tools) const { return form_for(tools).source; }

  /// Whether the text of the template has this word, the name of a member or role. Then it may read
  /// it.
  bool mentions(std::string_view word) const;

  /// The tokens that end the assistant's turn: one, unless markers are plain text; empty if the
  /// template writes none.
  const std::vector<std::int32_t>& end_of_turn() const { return end_of_turn_; }

  /// Whether something after the assistant's words is learned, such as the token that ends its
  /// turn. A model that does not learn it never stops. Also true if the template refuses an example
  /// of a question and an answer.
  bool teaches_end() const;

  /// Templates with equal fingerprints render alike, given the same tokenizer.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  struct Form {
    std::string name, source;
    jinja::Program program;
    std::map<std::string, ContentForm> contents = {};  // by role
    ArgumentsForm arguments = ArgumentsForm::object;
  };
  const Form& form_for(bool tools) const;
  const Form& form_for(const Conversation& conversation) const;
  void find_content_forms();
  jinja::Text text_of_first(const Conversation& conversation, std::size_t count,
                            bool prompted) const;
  std::string closing_prompt_for(const Conversation& conversation) const;
  void check(const Conversation& conversation, bool prompted) const;
  Rendered encode(const Conversation& conversation, bool prompted,
                  const std::string& location) const;
  void find_end_of_turn();

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Form> forms_;
  jinja::Variables variables_;
  std::optional<std::tm> now_;
  bool last_turn_only_;
  /// All added tokens; and those that an assistant's words may hold.
  AddedTokenFinder all_tokens_, plain_tokens_;
  std::vector<std::int32_t> end_of_turn_;
  std::string fingerprint_;
};

}  // namespace axonn
