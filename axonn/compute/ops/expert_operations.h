#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of a mixture of experts, a part of the table of operations.h. E: experts;
// k: experts of a row; R: rows before they are copied to their experts.
namespace axonn {

struct Checker;

namespace ops {

/// Chooses k of E experts for each row: those of the largest s + bias, ties to the lower index,
/// where s = softmax(logits) or sigmoid(logits). A NaN is chosen only where numbers run out.
/// Sources: Shazeer et al., "Outrageously large neural networks", 2017; the bias: Wang et al.,
/// "Auxiliary-loss-free load balancing strategy for mixture-of-experts", 2024.
struct Route {
  View ids;                ///< (R, k) i32: the chosen, ascending; read, not written, if `chosen`
  View weights;            ///< (R, k) f32: p of each, in the order of ids
  View scores;             ///< (R, E) f32: s
  View log_sums;           ///< (R, 1) f32: log of the sum of exp(logits)
  View score_sums = {};    ///< (R, 1) f32: the sum of s over all experts; or empty: not wanted
  View logits;             ///< (R, E) f32
  View bias = {};          ///< (1, E) T, added to the scores for the choice alone; or empty
  bool sigmoid = false;    ///< s = sigmoid(logits) instead of their softmax
  bool normalise = false;  ///< p = scale · s / (sum of the chosen s), else scale · s
  float scale = 1;
  /// The experts are so many groups of as many; only those of the `kept_groups` groups with the
  /// greatest sums of their two best s + bias, or their one best, can be chosen.
  int groups = 1, kept_groups = 1, group_best = 2;
  bool chosen = false;  ///< ids holds a recorded choice: for each row different numbers below E

  static constexpr std::string_view kName = "route";
  static constexpr std::uint32_t kAlsoWrites = 0b11110;
  auto operands() const {
    return std::array{scores, weights, ids, log_sums, score_sums, logits, bias};
  }
  void run(auto launch, const Checker& check) const;
};

/// The gradient of Route, and those of the losses on its scores and its log_sums. Row r belongs to
/// sequence (first_row + r) / positions. With forward.score_sums, the loss on the scores is one of
/// each row's s / (sum of s).
struct RouteBackward {
  View d_logits;      ///< (R, E) f32
  View d_weights;     ///< (R, k) f32
  Route forward;      ///< bias is not read
  View balance = {};  ///< (S, E) f32: the gradients of that loss in each sequence; or empty
  View counted = {};  ///< (1, R) i32: where it is 0, balance and z do not apply; empty: all apply
  std::int64_t first_row = 0, positions = 1;
  float z = 0;  ///< of the loss z · log_sum² of each row

  static constexpr std::string_view kName = "route_backward";
  auto operands() const {
    return std::array{d_logits,       d_weights,         forward.ids,    forward.weights,
                      forward.scores, forward.log_sums,  forward.logits, balance,
                      counted,        forward.score_sums};
  }
  void run(auto launch, const Checker& check) const;
};

/// Adds up what the losses on a router need, for each sequence: out (S, 2 E + 2) f64 += how often
/// each expert is in ids, the sum of each expert's shares of the rows' scores, the sum of
/// log_sums², and the number of rows.
struct RouteCounts {
  View out;              ///< (S, 2 E + 2) f64
  View ids;              ///< (R, k) i32
  View scores;           ///< (R, E) f32
  View log_sums;         ///< (R, 1) f32
  View score_sums = {};  ///< (R, 1) f32, divide the scores; or empty: the scores are the shares
  View counted = {};     ///< (1, R) i32: rows with 0 are left out; empty: none is
  std::int64_t first_row = 0, positions = 1;  ///< as in RouteBackward

  static constexpr std::string_view kName = "route_counts";
  auto operands() const { return std::array{out, ids, scores, log_sums, score_sums, counted}; }
  void run(auto launch, const Checker& check) const;
};

/// The order of the R · k copies of rows that experts compute: by expert, then by row.
struct ExpertOrder {
  View copy_rows;  ///< (R, k) i32: the row of the copy of row r for expert ids[r][j]
  View counts;     ///< (1, E) i32: copies of each expert
  View ids;        ///< (R, k) i32, below E, different within a row

  static constexpr std::string_view kName = "expert_order";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{copy_rows, counts, ids}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, k) f32 = inp · factors[ids]; out may be inp.
struct ExpertFactors {
  View out, inp;
  View ids;      ///< (R, k) i32
  View factors;  ///< (1, E) W, f32, bf16 or f16

  static constexpr std::string_view kName = "expert_factors";
  auto operands() const { return std::array{out, inp, ids, factors}; }
  void run(auto launch, const Checker& check) const;
};

/// The summands of the gradients of these factors: out[r][i] = d_out · inp of the expert i, if row
/// r has it, else 0.
struct ExpertFactorTerms {
  View out;         ///< (R, E) f32
  View d_out, inp;  ///< (R, k) f32
  View ids;         ///< (R, k) i32

  static constexpr std::string_view kName = "expert_factor_terms";
  auto operands() const { return std::array{out, d_out, inp, ids}; }
  void run(auto launch, const Checker& check) const;
};

/// Copies each row to its k copies: out[copy_rows[r][j]] = inp[r].
struct SpreadRows {
  View out;        ///< (R · k, C) T
  View inp;        ///< (R, C) T
  View copy_rows;  ///< (R, k) i32: each number below R · k once

  static constexpr std::string_view kName = "spread_rows";
  auto operands() const { return std::array{out, inp, copy_rows}; }
  void run(auto launch, const Checker& check) const;
};

/// out[r] = sum over j, ascending, of weights[r][j] · inp[copy_rows[r][j]], in f32, rounded once.
struct CombineRows {
  View out;           ///< (R, C) T
  View inp;           ///< (R · k, C) T
  View copy_rows;     ///< (R, k) i32: each number below R · k once
  View weights = {};  ///< (R, k) f32; or empty: all are 1, which is the gradient of SpreadRows

  static constexpr std::string_view kName = "combine_rows";
  auto operands() const { return std::array{out, inp, copy_rows, weights}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradients of CombineRows with weights, on a piece of each row.
struct CombineRowsBackward {
  View d_inp;  ///< (R · k, C) T, may be inp: d_inp[copy_rows[r][j]] = weights[r][j] · d_out[r]
  View d_weights;  ///< (R, k) f32: the sum of d_out[r] · inp[copy_rows[r][j]] over these columns
  View d_out;      ///< (R, C) T
  View inp;        ///< (R · k, C) T
  View copy_rows;  ///< (R, k) i32
  View weights;    ///< (R, k) f32

  static constexpr std::string_view kName = "combine_rows_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{d_inp, d_weights, d_out, inp, copy_rows, weights}; }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

}  // namespace axonn
