#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of losses of targets and of a teacher, and of records of targets, a part
// of the table of operations.h.
namespace axonn {

struct Checker;

/// This rank's piece of the vocabulary: its logits are those of tokens [first, first + valid). The
/// view's columns from `valid` on are padding.
struct VocabularyPiece {
  std::int64_t first = 0;
  std::int64_t valid = 0;
};

namespace ops {

/// out (R, 3) f32 = maximum, sum of exp(x - maximum), and the target's logit (0 if the target is
/// not in this piece), of logits (R, V) T. targets (1, R) i32, or empty: then out is (R, 2). If out
/// is (R, 4), the last column is the number of tokens of this piece that are as likely as the
/// target and have a lower id, where the target is the likeliest of this piece, else 0.
struct SoftmaxStats {
  View out, logits, targets;
  VocabularyPiece piece;

  static constexpr std::string_view kName = "softmax_stats";
  auto operands() const { return std::array{out, logits, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// lse (R, 1) f32 = log-sum-exp, and loss (R, 1) f32 = lse minus the target's logit, from the
/// stacked stats of all pieces (pieces · R, 3) or the first columns of such with 4. Rows with a
/// negative target have loss and lse 0.
struct CombineSoftmax {
  View loss, lse, stats, targets;

  static constexpr std::string_view kName = "combine_softmax";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{loss, lse, stats, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradient of a piece of the logits: (softmax (1 + 2 z lse) - one hot) · scale · the row's
/// weight, that of loss + z lse². Rows with a negative target and columns beyond piece.valid are
/// zero. With a bonus (e, H) of a row, that of -e H · scale is added, H its entropy:
/// p (log p + H) e · scale.
struct CrossEntropyBackward {
  View d_logits;  ///< (R, V) T, may be logits if both have the same type
  View logits;    ///< (R, V) T, may differ in type from d_logits
  View lse;       ///< (R, 1) f32: log of the sum of exponentials over all pieces
  View targets;   ///< (1, R) i32
  VocabularyPiece piece;
  float scale = 1;
  float z = 0;
  View weights = {};  ///< (R, 1) f32 of either sign; empty: all are 1
  View bonus = {};    ///< (R, 2) f32: e and H; empty: there is none

  static constexpr std::string_view kName = "cross_entropy_backward";
  auto operands() const { return std::array{d_logits, logits, lse, targets, weights, bonus}; }
  void run(auto launch, const Checker& check) const;
};

/// Loss, lse and gradient of rows that are whole, in one pass over memory: the bits are those of
/// SoftmaxStats, CombineSoftmax and CrossEntropyBackward of one piece.
struct CrossEntropy {
  View loss, lse;          ///< (R, 1) f32, see CombineSoftmax
  View d_logits;           ///< (R, V) T, may be logits if both have the same type
  View logits;             ///< (R, V) T, may differ in type from d_logits
  View targets;            ///< (1, R) i32, each less than `valid`
  std::int64_t valid = 0;  ///< columns that count
  float scale = 1;
  float z = 0;        ///< see CrossEntropyBackward
  View weights = {};  ///< likewise; of the gradient, not of loss
  View bonus = {};    ///< likewise

  static constexpr std::string_view kName = "cross_entropy";
  static constexpr std::uint32_t kAlsoWrites = 0b110;
  auto operands() const { return std::array{d_logits, loss, lse, logits, targets, weights, bonus}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 1) f32 = 1 if greedy decoding takes the target, else 0: no logit is larger than its, and
/// none of a lower id is equal. 0 if the target is negative.
struct GreedyTargets {
  View out;                     ///< (R, 1) f32
  View stats;                   ///< (pieces · R, 4) f32: SoftmaxStats of all pieces, stacked
  View targets;                 ///< (1, R) i32
  std::int64_t piece_size = 1;  ///< tokens of each piece but the last

  static constexpr std::string_view kName = "greedy_targets";
  auto operands() const { return std::array{out, stats, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 4) f32, of the target of each row: log p, its rank, and mean and variance of log p
/// under p. The rank is 1 + the number of tokens that have a larger logit, or an equal one and a
/// lower id. The variance is that of the logits; their mean is the log-sum-exp more. Zeros if the
/// target is negative.
struct TokenRecord {
  View out;
  /// (pieces · R', C) f32, R' >= R: rows of whole logits, in pieces of C tokens, stacked.
  View logits;
  View targets;            ///< (1, R) i32, each less than vocab
  std::int64_t vocab = 0;  ///< tokens; the rest of the last pieces is padding
  std::int64_t pieces = 1;

  static constexpr std::string_view kName = "token_record";
  auto operands() const { return std::array{out, logits, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 1) f32 = log of the probability with which sampling draws the target of each row, minus
/// infinity if never, 0 if the target is negative. Tokens are ordered as their ranks in TokenRecord
/// are; sampling keeps the first top_k, and of these the fewest, from the first on, whose weights
/// are at least top_p of all of them. A weight is e^(logit / temperature).
struct PolicyLogProbability {
  View out, logits, targets;  ///< see TokenRecord
  std::int64_t vocab = 0, pieces = 1;
  float temperature = 1;   ///< 0: the first token alone
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1;        ///< 0: the first token alone

  static constexpr std::string_view kName = "policy_log_probability";
  auto operands() const { return std::array{out, logits, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 1) f32 = the k-th largest logit of each row, the least finite number if it has fewer; 0
/// if the target is negative.
struct KthLargestLogit {
  View out, logits, targets;  ///< see TokenRecord
  std::int64_t vocab = 0, pieces = 1;
  std::int64_t k = 1;

  static constexpr std::string_view kName = "kth_largest_logit";
  auto operands() const { return std::array{out, logits, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 1) f32 = -sum of p log p over a piece of the vocabulary, p the softmax of the whole row.
struct EntropyTerms {
  View out;
  View logits;             ///< (R, V) f32
  View lse;                ///< (R, 1) f32: of whole rows
  View targets;            ///< (1, R) i32: a row with a negative one has a sum of 0
  std::int64_t valid = 0;  ///< columns that count

  static constexpr std::string_view kName = "entropy_terms";
  auto operands() const { return std::array{out, logits, lse, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// The divergence of two softmaxes of each row, S of `student` and T of `teacher` logits, with
/// M = (1 - beta) S + beta T, summed over a piece of the vocabulary:
///
///   beta 0:  T (log T - log S)
///   beta 1:  S (log S - log T)
///   else:    beta T (log T - log M) + (1 - beta) S (log S - log M)
///
/// Source: Agarwal et al., "On-policy distillation of language models", 2024, arXiv:2306.13649,
/// whose M has the weights the other way round.
///
/// With `kept`, the sums are of the teacher's likeliest tokens alone, and DivergenceTail adds the
/// summand of all others together.
struct DivergenceTerms {
  /// (R, 2) f32: the sum, and that of the summands with factor S. With `kept` (R, 4): then the sums
  /// of S and of T.
  View out;
  View student, teacher;          ///< (R, V) f32
  View student_lse, teacher_lse;  ///< (R, 1) f32: of whole rows
  View targets;                   ///< (1, R) i32: a row with a negative one has sums of 0
  std::int64_t valid = 0;         ///< columns that count
  float beta = 0;
  View kept = {};  ///< (R, 1) f32: the least logit of the teacher that counts; empty: all do

  static constexpr std::string_view kName = "divergence_terms";
  auto operands() const {
    return std::array{out, student, teacher, student_lse, teacher_lse, targets, kept};
  }
  void run(auto launch, const Checker& check) const;
};

/// Adds to the sums of whole rows the summand of the tokens that are not kept, as if they were one
/// token, the tail: terms (R, 4) f32 becomes the sum, that of the summands with factor S, and the
/// derivative by the tail's probability under S, which DivergenceBackward reads; the last column
/// stays. A tail has a probability of at least 1e-7.
struct DivergenceTail {
  View terms;
  View targets;  ///< (1, R) i32: a row with a negative one stays
  float beta = 0;

  static constexpr std::string_view kName = "divergence_tail";
  auto operands() const { return std::array{terms, targets}; }
  void run(auto launch, const Checker& check) const;
};

/// d_logits (R, V) T = scale · the gradient of the divergence by the student's logits; 0 in columns
/// that do not count and in rows with a negative target.
struct DivergenceBackward {
  View d_logits;
  View student, teacher, student_lse, teacher_lse, targets;  ///< see DivergenceTerms
  View terms;  ///< its result of whole rows, with DivergenceTail if there is `kept`
  std::int64_t valid = 0;
  float beta = 0, scale = 1;
  View kept = {};  ///< see DivergenceTerms

  static constexpr std::string_view kName = "divergence_backward";
  auto operands() const {
    return std::array{d_logits, student, teacher, student_lse, teacher_lse, targets, terms, kept};
  }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

}  // namespace axonn
