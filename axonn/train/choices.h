#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/data/choice_questions.h"
#include "axonn/train/score.h"

namespace axonn {

/// What a model makes of one question.
struct ChoiceScore {
  std::vector<double> log_likelihoods;  ///< of each choice given the question, nats
  std::vector<bool> greedy;             ///< whether it would write that choice by itself
  std::int64_t chosen = 0;              ///< the likeliest choice, the first of equals
  std::int64_t chosen_by_byte = 0;      ///< the same of log-likelihoods over the choice's bytes
};

/// A share of right answers and its standard error, sqrt(p (1 - p) / (n - 1)); 0 for one question.
struct Accuracy {
  double share = 0, error = 0;
};

struct ChoiceReport {
  std::vector<ChoiceScore> questions;
  Accuracy accuracy;          ///< acc: of `chosen`
  Accuracy accuracy_by_byte;  ///< acc_norm: of `chosen_by_byte`
};

/// Scores every choice of every question: the log-likelihood of " choice" given the question, which
/// loses its front where both together are longer than the model's positions. Of options, batch is
/// in choices. Collective over the session's ranks; the same on every one.
/// Errors: UsageError that names the question (counted from 1) if a choice is longer than the
/// model's positions or cannot be encoded; as score().
/// Source: EleutherAI's lm-evaluation-harness, tasks with output_type multiple_choice.
ChoiceReport evaluate_choices(Session& session, std::span<const ChoiceQuestion> questions,
                              const Tokenizer& tokenizer, const ScoreOptions& options);

}  // namespace axonn
