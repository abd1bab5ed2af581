#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "axonn/data/corpus/preferences/answer_lines.h"

namespace axonn {

/// Two answers to a prompt, of which the first was preferred.
struct TextPair {
  std::string prompt, chosen, rejected;
};

/// The same as messages. Both conversations begin with those of the prompt.
struct MessagePair {
  MessageAnswer chosen, rejected;
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
/// be "tools", "documents" and "chat_template_kwargs". Throws UsageError, beginning with
/// `location`, if the line is no JSON object or lacks one of the answers, if a value has the wrong
/// type, if both answers are the same, or for keys that would change what is learned (line_keys.h).
AnswerPair parse_pair(std::string_view line, const std::string& location);

/// The bytes that chosen and rejected, which have no prompt of their own, share. They end before
/// the space that precedes the first difference; if one is the beginning of the other, before its
/// last character.
std::size_t shared_prompt(std::string_view chosen, std::string_view rejected);

/// The chosen answer and the rejected one.
std::array<Answer, 2> answers_of(const AnswerPair& pair);

/// The tokens of prompt and answer, coded as in Documents.
struct CodedPair {
  std::vector<std::int32_t> chosen, rejected;
};

/// Encodes both as encode_answer() does, which throws. Answers that are texts begin where the
/// tokens of the prompt alone cease to be those of both texts.
CodedPair encode_pair(const AnswerFormat& format, const AnswerPair& pair,
                      const std::string& location);

}  // namespace axonn
