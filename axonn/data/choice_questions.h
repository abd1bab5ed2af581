#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/tokenizer.h"

namespace axonn {

/// A question with answers to choose from.
struct ChoiceQuestion {
  std::string question;
  std::vector<std::string> choices;  ///< two or more, none empty
  std::int64_t answer = 0;           ///< the right one

  bool operator==(const ChoiceQuestion&) const = default;
};

/// Reads JSON lines of {"question": text, "choices": [text, ...], "answer": which}; other keys are
/// passed over, and so are empty lines. The answer is an index from 0, the text of a choice, or a
/// letter from "A". Errors: UsageError names `path`, the line and what is wrong there, and if there
/// is no question.
std::vector<ChoiceQuestion> parse_choice_questions(std::string_view text, const std::string& path);

/// The same of a file.
std::vector<ChoiceQuestion> read_choice_questions(const std::string& path);

/// A context and what is to follow it, as tokens.
struct Continuation {
  std::vector<std::int32_t> tokens;
  std::int64_t scored = 0;  ///< the last ones, which are the continuation's
};

/// White space at the end of the context goes to the continuation; both are encoded together, and
/// the continuation's tokens are those behind as many as the context has by itself. The beginning
/// of text, if the tokenizer has one, stands before all; before an empty context, where there is
/// none, the end of text. Errors: UsageError if nothing is left to score, or nothing stands before.
/// Source: EleutherAI's lm-evaluation-harness, _encode_pair.
Continuation encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                 std::string_view continuation);

}  // namespace axonn
