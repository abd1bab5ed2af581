#include "tests/compute/ops/attention_case.h"

#include <cmath>

namespace axonn {

using reference::Matrix;

namespace {

Matrix columns(const Matrix& from, std::int64_t begin, std::int64_t count, std::int64_t rows) {
  Matrix out(rows, count);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) out(r, c) = from(r, begin + c);
  return out;
}

}  // namespace

Matrix AttentionOutcome::rows_of_queries(const AttentionCase& c, const Matrix& all) {
  Matrix out(c.queries(), all.cols);
  for (std::int64_t r = 0; r < out.rows; ++r)
    for (std::int64_t col = 0; col < all.cols; ++col)
      out(r, col) = all(c.shape.own_key(r, all.rows), col);
  return out;
}

Matrix AttentionOutcome::with_queries(const AttentionCase& c, Matrix all, std::int64_t cols) {
  const Matrix queries = rows_of_queries(c, all);
  for (std::int64_t r = 0; r < queries.rows; ++r)
    for (std::int64_t col = 0; col < cols; ++col) all(r, col) = queries(r, col);
  return all;
}

Matrix AttentionOutcome::d_q() const { return columns(d_qkv.values(), 0, q_cols, q_rows); }

Matrix AttentionOutcome::d_keys(int i) const {
  if (d_kv.view().rows > 0) return columns(d_kv.values(), i * k_cols, k_cols, rows);
  return columns(d_qkv.values(), q_cols + i * k_cols, k_cols, rows);
}

std::vector<std::int32_t> starts_of(std::int64_t sequences, std::int64_t positions,
                                    const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> starts;
  for (std::int64_t s = 0; s < sequences; ++s) {
    std::int32_t begin = 0;
    for (const std::int32_t length : lengths) {
      starts.insert(starts.end(), length, begin);
      begin += length;
    }
    starts.resize((s + 1) * positions, begin);
  }
  return starts;
}

void check_attention_case(Backend& backend, const AttentionCase& c, Backend* of_backward) {
  const auto& s = c.shape;
  SCOPED_TRACE(testing::Message() << c.sequences << " sequences of " << s.positions << ", heads "
                                  << s.heads << " over " << s.kv_heads << " of " << s.head_dim
                                  << ", group " << s.group << " from " << s.first_query << ", "
                                  << name_of(c.type));
  const AttentionOutcome run(c, backend, of_backward ? *of_backward : backend);
  const Matrix qkv = run.qkv.values(), q = columns(qkv, 0, run.q_cols, run.q_rows),
               k = columns(qkv, run.q_cols, run.k_cols, run.rows),
               v = columns(qkv, run.q_cols + run.k_cols, run.k_cols, run.rows);
  const auto want = attention(q, k, v, s);
  const auto gradients = attention_backward(run.d_out.values(), q, k, v, s);

  // A score is a sum of D products, and its error enters p as a factor. Then T products are added,
  // for d_k and d_v over all heads of the group. Relative to the largest result, each adds at most
  // one f32 rounding.
  const double terms = static_cast<double>(s.head_dim + s.positions * s.group + 16);
  const double error = 2 * terms * rounding(DType::f32);
  // In bf16 each p is rounded before its product, with at most this relative error; a query's p add
  // up to 1, and no value is above 1.
  const double p_error = c.type == DType::f32 ? 0 : rounding(c.type);
  EXPECT_TRUE(close(run.out, want.out, stored(c.type, error + p_error)));
  EXPECT_TRUE(close(run.stats, want.lse, stored(DType::f32, error * (1 + largest(want.lse)))));

  // delta comes from the stored `out`: its error is a sum of D roundings of products below 1. Every
  // d_score is off by that in proportion to p, which adds up to 1 over the keys of a query. Then
  // d_score itself, scale · p times the difference of two sums of D products below 1, is rounded.
  const double delta_error =
      c.type == DType::f32 ? 0 : 3 * s.scale * static_cast<double>(s.head_dim) * rounding(c.type);
  const auto tolerance = [&](DType type, const Matrix& part, double extra) {
    return stored(type, error * (1 + largest(part)) + extra);
  };
  const DType sums = c.f32_sums ? DType::f32 : c.type;
  const double queries = static_cast<double>(s.positions * s.group);
  const auto& [d_q, d_k, d_v] = gradients;
  EXPECT_TRUE(close(run.d_q(), d_q, tolerance(c.type, d_q, delta_error)));
  EXPECT_TRUE(close(run.d_k(), d_k, tolerance(sums, d_k, delta_error * std::log(queries + 1))));
  EXPECT_TRUE(close(run.d_v(), d_v, tolerance(sums, d_v, p_error * std::log(queries + 1))));
  EXPECT_TRUE(run.d_qkv.gap_untouched());
  EXPECT_TRUE(run.d_kv.gap_untouched());
}

}  // namespace axonn
