#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of gated delta nets, a part of the table of operations.h. Sources: Yang
// et al., "Gated delta networks: improving Mamba2 with delta rule", 2024 (arXiv 2412.06464).
namespace axonn {

struct Checker;

namespace ops {

/// out = the transpose of inp, or out += that.
struct Transpose {
  View out;  ///< (R, C) f32
  View inp;  ///< (C, R), f32, bf16 or f16
  bool accumulate = false;

  static constexpr std::string_view kName = "transpose";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// The rows that a row sees. Rows are sequences of `positions` rows, one after another, and a row's
/// document begins at position starts of its sequence; without starts, at 0. Or, while sequences
/// are generated, row r is position `position` of slot `slots`, whose earlier rows are above it or
/// belong to earlier calls; rows with a negative slot are left out.
struct SeenRows {
  std::int64_t positions = 0;  ///< of slots: 0
  View starts = {};            ///< (1, R) i32 or empty
  View slots = {};             ///< (1, R) i32 or empty
  View position = {};          ///< (1, R) i32, with slots
};

/// A causal convolution of each column on its own: out[r] = the sum over the J taps j of weight[j]
/// · inp[r - J + 1 + j], where rows that row r does not see are 0. `adjoint`: the other way round,
/// out[r] = the sum of weight[j] · inp[r + J - 1 - j], as the gradient of the input needs it.
struct CausalConvolution {
  /// The J of the faster kernel; fewer taps are so many of which the first have the weight 0.
  static constexpr int kFewTaps = 4;

  View out, inp;  ///< (R, C) T
  View weight;    ///< (J + 1, C) f32; the last row is zero
  SeenRows seen;
  /// (slots · (J - 1), C) T: inputs of earlier calls, position p in row p % (J - 1) of its slot
  /// (KeepHeads); with seen.slots.
  View kept = {};
  bool adjoint = false;

  static constexpr std::string_view kName = "causal_convolution";
  static constexpr std::uint32_t kAlsoWrites = 0b1000000;
  auto operands() const {
    return std::array{out, inp, weight, seen.starts, seen.slots, seen.position, kept};
  }
  void run(auto launch, const Checker& check) const;
};

/// d_weight += the gradient of CausalConvolution's weights.
struct CausalConvolutionWeights {
  View d_weight;    ///< (J, C) f32
  View d_out, inp;  ///< (R, C) T
  SeenRows seen;    ///< without slots

  static constexpr std::string_view kName = "causal_convolution_weights";
  auto operands() const { return std::array{d_weight, d_out, inp, seen.starts}; }
  void run(auto launch, const Checker& check) const;
};

/// decay = -e^a_log · log(1 + e^(a + bias)), beta = sigmoid(b).
struct DeltaGates {
  View decay, beta;  ///< (R, h) f32
  View a, b;         ///< (R, h) T
  View a_log, bias;  ///< (1, h) W

  static constexpr std::string_view kName = "delta_gates";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{decay, beta, a, b, a_log, bias}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradients of DeltaGates; forward.beta is read.
struct DeltaGatesBackward {
  DeltaGates forward;
  View d_decay, d_beta;    ///< (R, h) f32
  View d_a, d_b;           ///< (R, h) T
  View of_a_log, of_bias;  ///< (R, h) f32: the terms of the gradients of a_log and bias

  static constexpr std::string_view kName = "delta_gates_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b1110;
  auto operands() const {
    return std::array{d_a,       d_b,       of_a_log,      of_bias,
                      d_decay,   d_beta,    forward.decay, forward.beta,
                      forward.a, forward.b, forward.a_log, forward.bias};
  }
  void run(auto launch, const Checker& check) const;
};

/// The gated delta rule. Each value head has a state S (K, V), zero before the first row that a row
/// sees. Row by row, with this row's k, v and q, α = e^decay and β = beta:
///
///   S = α S;  δ = β (v - Sᵀ k);  S = S + k δᵀ;  out = Sᵀ q
///
/// Value head j reads key head (first_value + j) / group of q and k. All arithmetic is in f32.
struct DeltaRule {
  View out;     ///< (R, h·V) T
  View states;  ///< (B·h, (K + 2)·V) f32: memory of a head; with slots, B of them, it is kept
  View q, k;    ///< (R, g·K) T
  View v;       ///< (R, h·V) T
  View decay, beta;  ///< (R, h) f32
  SeenRows seen;
  std::int64_t heads = 0;      ///< h
  std::int64_t key_heads = 0;  ///< g
  std::int64_t group = 1;
  std::int64_t first_value = 0;

  static constexpr std::string_view kName = "delta_rule";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const {
    return std::array{out, states, q, k, v, decay, beta, seen.starts, seen.slots, seen.position};
  }
  void run(auto launch, const Checker& check) const;
};

/// The gradients of DeltaRule, without slots; forward.out and forward.states are not read. States
/// are made once more: those before every kRows-th row of a sequence first, then, from the last of
/// these runs of rows to the first, those before each of its rows.
struct DeltaRuleBackward {
  static constexpr std::int64_t kRows = 32;
  /// Columns of `memory` for sequences of so many positions.
  static std::int64_t memory_cols(std::int64_t positions, std::int64_t key_dim,
                                  std::int64_t value_dim) {
    return ((positions + kRows - 1) / kRows + kRows + 1) * key_dim * value_dim + 2 * value_dim;
  }

  DeltaRule forward;
  View d_out;            ///< (R, h·V) T
  View d_q, d_k;         ///< (R, g·K) f32, added to
  View d_v;              ///< (R, h·V) T
  View d_decay, d_beta;  ///< (R, h) f32
  View deltas;           ///< (R, h·V) f32: memory for δ
  View memory;           ///< (B·g, memory_cols()) f32

  static constexpr std::string_view kName = "delta_rule_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b1111110;
  auto operands() const {
    return std::array{
        d_q,   d_k,       d_v,       d_decay,   d_beta,        deltas,       memory,
        d_out, forward.q, forward.k, forward.v, forward.decay, forward.beta, forward.seen.starts};
  }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

}  // namespace axonn
