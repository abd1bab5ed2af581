#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "axonn/data/corpus/documents.h"
#include "axonn/data/text/chat/chat_template.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// Two answers to a prompt, of which the first was preferred.
struct TextPair {
  std::string prompt, chosen, rejected;
};

/// The same as messages. Both conversations begin with the prompt's, which are as many as `prompt`.
struct MessagePair {
  Conversation chosen, rejected;
  std::size_t prompt = 0;
};

struct AnswerPair {
  std::variant<TextPair, MessagePair> answers;
  /// Keys of the line, and of its messages, that nothing reads and that are not usual.
  std::vector<std::string> line_keys = {}, message_keys = {};
};

/// Parses a line {"prompt": ..., "chosen": ..., "rejected": ...}, all of them strings or lists of
/// messages. Without a prompt, it is what both answers begin with, as TRL has it: of strings up to
/// the last space before they differ (shared_prompt()), of lists the messages before they differ.
/// A prompt may also be the string that the last of these messages holds. Beside messages there may
/// be "tools", "documents" and "chat_template_kwargs". Throws UsageError, beginning with `place`,
/// if the line is no JSON object or lacks one of the answers, if a value has the wrong type, if
/// both answers are the same, or for keys that would change what is learned (line_keys.h).
AnswerPair parse_pair(std::string_view line, const std::string& place);

/// The bytes that chosen and rejected, which have no prompt of their own, share. They end before
/// the space that precedes the first difference; if one is the beginning of the other, before its
/// last character.
std::size_t shared_prompt(std::string_view chosen, std::string_view rejected);

/// The tokens of prompt and answer, coded as in Documents.
struct CodedPair {
  std::vector<std::int32_t> chosen, rejected;
};

/// What pairs are encoded with. `chat` is needed for messages.
struct PairFormat {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat = {};
};

/// Encodes prompt and answer, twice. All that follows the prompt is learned.
///
///   texts     each ends with the end-of-text token. An answer begins where the tokens of the
///             prompt alone cease to be those of both texts, so that no token is half prompt and
///             half answer.
///   messages  as the chat template writes them. An answer begins with the assistant's first words
///             after the prompt, as ChatTemplate::render() finds them.
///
/// Throws UsageError, beginning with `place`, for messages that the template refuses.
CodedPair encode_pair(const PairFormat& format, const AnswerPair& pair, const std::string& place);

/// Whether the first line of a file of pairs has lists of messages. Throws as parse_pair() does.
bool holds_message_pairs(const std::string& file);

/// Encodes the lines of the files, also compressed ones and tables (text_reader.h), as documents,
/// by all cores: chosen is number 2 n, rejected 2 n + 1. They stay in memory. Throws UsageError,
/// with "FILE:LINE", as parse_pair() and encode_pair() do, and if some pairs are texts and others
/// messages.
std::shared_ptr<const Documents> encode_pairs(const std::vector<std::string>& files,
                                              const PairFormat& format);

}  // namespace axonn
