#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/use/infer/evaluate.h"

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

/// Encodes a context and its continuation, which is scored, together; leaves `positions` 0. White
/// space at the end of the context counts as part of the continuation. If the context alone has n
/// tokens, the continuation's are those after the first n. The begin-of-text token comes first if
/// the tokenizer has one; if not, the end-of-text token comes before an empty context. Throws
/// UsageError if no token is left to score, or if no token precedes the continuation. Source:
/// EleutherAI's lm-evaluation-harness, _encode_pair.
ScoredSequence encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                   std::string_view continuation);

/// Scores of one question.
struct ChoiceScore {
  std::vector<double> log_likelihoods;   ///< of each choice given the question, nats
  std::vector<bool> greedy;              ///< whether greedy decoding would write that choice
  std::int64_t chosen = 0;               ///< likeliest choice, the first of equals
  std::int64_t chosen_by_character = 0;  ///< the same by log-likelihoods per code point of it
  std::int64_t chosen_by_byte = 0;       ///< the same per byte
};

/// The fraction of right answers and its standard error, sqrt(p (1 - p) / (n - 1)); 0 for one
/// question.
struct Accuracy {
  double share = 0, error = 0;
};

struct ChoiceReport {
  std::vector<ChoiceScore> questions;
  // lm-evaluation-harness calls them acc, acc_norm and acc_bytes.
  Accuracy accuracy, accuracy_by_character, accuracy_by_byte;
};

/// Scores every choice of every question: the log-likelihood of " choice" given the question. If
/// both together are longer than the model's positions, the question loses its beginning. In
/// options, batch counts choices. Collective over the model's ranks; the result is the same on
/// every rank. Throws UsageError that names the question (counted from 1) if a choice is longer
/// than the model's positions or cannot be encoded; also throws as score() does. Source:
/// EleutherAI's lm-evaluation-harness, tasks with output_type multiple_choice.
ChoiceReport evaluate_choices(LoadedModel& model, std::span<const ChoiceQuestion> questions,
                              const Tokenizer& tokenizer, const ScoreOptions& options);

}  // namespace axonn
