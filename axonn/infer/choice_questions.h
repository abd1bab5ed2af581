#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/text/tokenizer.h"

namespace axonn {

/// A multiple-choice question.
struct ChoiceQuestion {
  std::string question;
  std::vector<std::string> choices;  ///< two or more, none empty
  std::int64_t answer = 0;           ///< index of the right choice

  bool operator==(const ChoiceQuestion&) const = default;
};

/// Parses JSON lines of {"question": text, "choices": [text, ...], "answer": answer}; ignores other
/// keys and empty lines. The answer is an index from 0, the text of a choice, or a letter from "A".
/// Throws UsageError with `path`, the line and the fault; also if there is no question.
std::vector<ChoiceQuestion> parse_choice_questions(std::string_view text, const std::string& path);

/// Reads such a file.
std::vector<ChoiceQuestion> read_choice_questions(const std::string& path);

/// The tokens of a context and its continuation.
struct Continuation {
  std::vector<std::int32_t> tokens;
  std::int64_t scored = 0;  ///< number of tokens of the continuation, at the end
};

/// Encodes a context and its continuation together. White space at the end of the context counts as
/// part of the continuation. If the context alone has n tokens, the continuation's are those after
/// the first n. The begin-of-text token comes first if the tokenizer has one; if not, the
/// end-of-text token comes before an empty context. Throws UsageError if no token is left to score,
/// or if no token precedes the continuation. Source: EleutherAI's lm-evaluation-harness,
/// _encode_pair.
Continuation encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                 std::string_view continuation);

}  // namespace axonn
