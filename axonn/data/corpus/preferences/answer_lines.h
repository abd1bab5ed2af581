#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/data/text/chat/members.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// An answer to a prompt.
struct TextAnswer {
  std::string prompt, answer;
};

/// The same as messages: those of the prompt, as many as `prompt`, and those of the answer.
struct MessageAnswer {
  Conversation talk;
  std::size_t prompt = 0;
};

using Answer = std::variant<TextAnswer, MessageAnswer>;

/// What answers are encoded with. `chat` is needed for messages.
struct AnswerFormat {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat = {};
};

/// Encodes prompt and answer, coded as in Documents. All that follows the prompt is learned.
///
///   texts     end with the end-of-text token. The answer begins where the tokens of the prompt
///             alone cease to be those of the whole text, so that no token is half prompt and half
///             answer.
///   messages  as the chat template writes them. The answer begins with the assistant's first words
///             after the prompt, as ChatTemplate::render() finds them.
///
/// Throws UsageError, beginning with `location`, for messages that the template refuses, and if the
/// answer does not begin with one of the assistant's.
std::vector<std::int32_t> encode_answer(const AnswerFormat& format, const Answer& answer,
                                        const std::string& location);

/// The number of tokens before the answer.
std::size_t prompt_size(const std::vector<std::int32_t>& coded);

/// Of a line: the string or the messages under a key; empty if it is missing. Throw UsageError,
/// beginning with `location`, for another type.
std::string string_in_answers(Members& line, const char* key, const std::string& location);
jinja::List messages_in_answers(Members& line, const char* key, const std::string& location);

/// Joins the messages of a prompt and of the answer under `key` of a line that may also have
/// "tools", "documents" and "chat_template_kwargs", and adds the members of messages that nothing
/// reads to `unread`. Throws UsageError, beginning with `location`, if a message is malformed or
/// says that it is not learned.
struct AnswerLocation {
  const char* key;
  std::size_t bytes;  ///< of the line
  const std::string& location;
};
MessageAnswer join_answer(Members& line, const jinja::List& prompt, const jinja::List& answer,
                          const AnswerLocation& at, std::vector<std::string>& unread);

}  // namespace axonn
