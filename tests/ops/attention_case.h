#pragma once

#include "axonn/ops/backend.h"

#include "tests/ops/harness.h"

namespace axonn {

/// An attention with random operands.
struct AttentionCase {
  std::int64_t sequences;
  reference::AttentionShape shape;
  DType type;
  std::int64_t gap = 0;  ///< elements between the rows of every operand; 0: various odd gaps
};

/// Runs forward and backward; q, k and v are columns of one buffer, their gradients of another.
struct AttentionOutcome {
  explicit AttentionOutcome(const AttentionCase& c, Backend& backend)
      : AttentionOutcome(c, backend, backend) {}
  /// With backward by another backend, whose operations reach the same memory.
  AttentionOutcome(const AttentionCase& c, Backend& backend, Backend& of_backward)
      : rows(c.sequences * c.shape.positions),
        q_cols(c.shape.heads * c.shape.head_dim),
        k_cols(c.shape.kv_heads * c.shape.head_dim),
        qkv(random_values("qkv", rows, q_cols + 2 * k_cols, c.type), c.type, c.gap ? c.gap : 3),
        d_qkv(rows, q_cols + 2 * k_cols, c.type, c.gap ? c.gap : 1),
        out(rows, q_cols, c.type, c.gap ? c.gap : 2),
        stats(rows, c.shape.heads, DType::f32),
        d_out(random_values("d_out", rows, q_cols, c.type), c.type),
        starts(c.shape.starts) {
    const auto part = [&](const Operand& all, int i) {
      return all.view().col_range(i == 0 ? 0 : q_cols + (i - 1) * k_cols, i == 0 ? q_cols : k_cols);
    };
    const Attention forward{.q = part(qkv, 0),
                            .k = part(qkv, 1),
                            .v = part(qkv, 2),
                            .out = out,
                            .stats = stats,
                            .positions = c.shape.positions,
                            .heads = c.shape.heads,
                            .head_dim = c.shape.head_dim,
                            .group = c.shape.group,
                            .first_query = c.shape.first_query,
                            .window = c.shape.window,
                            .scale = static_cast<float>(c.shape.scale),
                            .starts = c.shape.starts.empty() ? View{} : starts.view()};
    backend.attention(forward);
    of_backward.attention_backward({.forward = forward,
                                    .d_out = d_out,
                                    .d_q = part(d_qkv, 0),
                                    .d_k = part(d_qkv, 1),
                                    .d_v = part(d_qkv, 2)});
  }

  std::int64_t rows, q_cols, k_cols;
  Operand qkv, d_qkv, out, stats, d_out, starts;
};

/// Compares a case, forward and backward, with plain loops. Null: backward by the same backend.
void check_attention_case(Backend& backend, const AttentionCase& c, Backend* of_backward = nullptr);

/// The starts of sequences of documents with these lengths; the rest of a sequence is one more.
std::vector<std::int32_t> starts_of(std::int64_t sequences, std::int64_t positions,
                                    const std::vector<std::int32_t>& lengths);

}  // namespace axonn
