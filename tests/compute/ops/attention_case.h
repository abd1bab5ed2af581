#pragma once

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

namespace axonn {

/// An attention with random operands. With query blocks, the rows of q and d_out are those of the
/// case without them, at the positions of the blocks.
struct AttentionCase {
  std::int64_t sequences;
  reference::AttentionShape shape;
  DType type;
  std::int64_t gap = 0;   ///< elements between the rows of every operand; 0: various odd gaps
  bool f32_sums = false;  ///< d_k and d_v are f32, and lie in d_kv

  std::int64_t keys() const { return sequences * shape.positions; }
  std::int64_t queries() const {
    return shape.query_blocks.empty() ? keys() : 64 * std::ssize(shape.query_blocks);
  }
};

/// Runs forward and backward; q, k and v are columns of one buffer, their gradients of another.
/// Of the buffers, q and d_q have only as many rows as there are queries.
struct AttentionOutcome {
  explicit AttentionOutcome(const AttentionCase& c, Backend& backend)
      : AttentionOutcome(c, backend, backend) {}
  /// With backward by another backend, whose operations reach the same memory.
  AttentionOutcome(const AttentionCase& c, Backend& backend, Backend& of_backward)
      : rows(c.keys()),
        q_rows(c.queries()),
        q_cols(c.shape.heads * c.shape.head_dim),
        k_cols(c.shape.kv_heads * c.shape.head_dim),
        qkv(with_queries(c, random_values("qkv", rows, q_cols + 2 * k_cols, c.type), q_cols),
            c.type, c.gap ? c.gap : 3),
        d_qkv(rows, q_cols + 2 * k_cols, c.type, c.gap ? c.gap : 1),
        d_kv(reference::Matrix(c.f32_sums ? rows : 0, 2 * k_cols, 7), DType::f32, c.gap),
        out(q_rows, q_cols, c.type, c.gap ? c.gap : 2),
        stats(q_rows, c.shape.heads, DType::f32),
        d_out(rows_of_queries(c, random_values("d_out", rows, q_cols, c.type)), c.type),
        starts(c.shape.starts),
        query_blocks(c.shape.query_blocks) {
    const auto part = [&](const Operand& all, int i) {
      return i == 0 ? all.view().row_range(0, q_rows).col_range(0, q_cols)
                    : all.view().col_range(q_cols + (i - 1) * k_cols, k_cols);
    };
    const auto keys_part = [&](int i) {
      return c.f32_sums ? d_kv.view().col_range((i - 1) * k_cols, k_cols) : part(d_qkv, i);
    };
    const Attention forward{
        .q = part(qkv, 0),
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
        .cap = static_cast<float>(c.shape.cap),
        .starts = c.shape.starts.empty() ? View{} : starts.view(),
        .query_blocks = c.shape.query_blocks.empty() ? View{} : query_blocks.view(),
        .runs = QueryRuns::of(c.shape.query_blocks, c.sequences)};
    backend.attention(forward);
    of_backward.attention_backward({.forward = forward,
                                    .d_out = d_out,
                                    .d_q = part(d_qkv, 0),
                                    .d_k = keys_part(1),
                                    .d_v = keys_part(2)});
  }

  /// The rows of `all`, one for each position, at which the queries lie.
  static reference::Matrix rows_of_queries(const AttentionCase& c, const reference::Matrix& all);
  /// `all` with those rows of its first `cols` columns first.
  static reference::Matrix with_queries(const AttentionCase& c, reference::Matrix all,
                                        std::int64_t cols);

  reference::Matrix d_q() const;
  reference::Matrix d_k() const { return d_keys(0); }
  reference::Matrix d_v() const { return d_keys(1); }
  reference::Matrix d_keys(int i) const;

  std::int64_t rows, q_rows, q_cols, k_cols;
  Operand qkv, d_qkv, d_kv, out, stats, d_out, starts, query_blocks;
};

/// Compares a case, forward and backward, with plain loops. Null: backward by the same backend.
void check_attention_case(Backend& backend, const AttentionCase& c, Backend* of_backward = nullptr);

/// The starts of sequences of documents with these lengths; the rest of a sequence is one more.
std::vector<std::int32_t> starts_of(std::int64_t sequences, std::int64_t positions,
                                    const std::vector<std::int32_t>& lengths);

}  // namespace axonn
