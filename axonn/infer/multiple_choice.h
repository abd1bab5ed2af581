#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/infer/choice_questions.h"
#include "axonn/infer/score.h"

namespace axonn {

/// Scores of one question.
struct ChoiceScore {
  std::vector<double> log_likelihoods;  ///< of each choice given the question, nats
  std::vector<bool> greedy;             ///< whether greedy decoding would write that choice
  std::int64_t chosen = 0;              ///< likeliest choice, the first of equals
  std::int64_t chosen_by_byte = 0;      ///< the same with log-likelihoods per byte of the choice
};

/// The fraction of right answers and its standard error, sqrt(p (1 - p) / (n - 1)); 0 for one
/// question.
struct Accuracy {
  double share = 0, error = 0;
};

struct ChoiceReport {
  std::vector<ChoiceScore> questions;
  Accuracy accuracy;          ///< of `chosen`; the harness' acc
  Accuracy accuracy_by_byte;  ///< of `chosen_by_byte`; the harness' acc_norm
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
