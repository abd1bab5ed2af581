#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of a model that learns from a teacher, a part of the table of
// operations.h.
namespace axonn {

struct Checker;

namespace ops {

/// The divergence of two softmaxes of each row, S of `student` and T of `teacher` logits, with
/// M = (1 - beta) S + beta T, summed over a piece of the vocabulary:
///
///   beta 0:  T (log T - log S)
///   beta 1:  S (log S - log T)
///   else:    beta T (log T - log M) + (1 - beta) S (log S - log M)
///
/// Source: Agarwal et al., "On-policy distillation of language models", 2024, arXiv:2306.13649,
/// whose M has the weights the other way round.
struct DivergenceTerms {
  View out;                       ///< (R, 2) f32: the sum, and that of the summands with factor S
  View student, teacher;          ///< (R, V) f32
  View student_lse, teacher_lse;  ///< (R, 1) f32: of whole rows
  View targets;                   ///< (1, R) i32: a row with a negative one has sums of 0
  std::int64_t valid = 0;         ///< columns that count
  float beta = 0;

  static constexpr std::string_view kName = "divergence_terms";
  auto operands() const {
    return std::array{out, student, teacher, student_lse, teacher_lse, targets};
  }
  void run(auto launch, const Checker& check) const;
};

/// d_logits (R, V) T = scale · the gradient of the divergence by the student's logits; 0 in columns
/// that do not count and in rows with a negative target.
struct DivergenceBackward {
  View d_logits;
  View student, teacher, student_lse, teacher_lse, targets;  ///< see DivergenceTerms
  View terms;                                                ///< its result, of whole rows
  std::int64_t valid = 0;
  float beta = 0, scale = 1;

  static constexpr std::string_view kName = "divergence_backward";
  auto operands() const {
    return std::array{d_logits, student, teacher, student_lse, teacher_lse, targets, terms};
  }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

}  // namespace axonn
