#include <cmath>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/ops/backend.h"

#include "tests/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

struct Case {
  std::int64_t sequences;
  reference::AttentionShape shape;
  DType type;
};

Matrix columns(const Matrix& from, std::int64_t begin, std::int64_t count) {
  Matrix out(from.rows, count);
  for (std::int64_t r = 0; r < from.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) out(r, c) = from(r, begin + c);
  return out;
}

/// Forward and backward with q, k and v, and their gradients, as columns of one buffer each.
struct Outcome {
  explicit Outcome(const Case& c, Backend& backend)
      : rows(c.sequences * c.shape.positions),
        q_cols(c.shape.heads * c.shape.head_dim),
        k_cols(c.shape.kv_heads * c.shape.head_dim),
        qkv(random_values("qkv", rows, q_cols + 2 * k_cols, c.type), c.type, 3),
        d_qkv(rows, q_cols + 2 * k_cols, c.type, 1),
        out(rows, q_cols, c.type, 2),
        stats(rows, c.shape.heads, DType::f32),
        d_out(random_values("d_out", rows, q_cols, c.type), c.type) {
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
                            .scale = static_cast<float>(c.shape.scale)};
    backend.attention(forward);
    backend.attention_backward({.forward = forward,
                                .d_out = d_out,
                                .d_q = part(d_qkv, 0),
                                .d_k = part(d_qkv, 1),
                                .d_v = part(d_qkv, 2)});
  }

  std::int64_t rows, q_cols, k_cols;
  Operand qkv, d_qkv, out, stats, d_out;
};

void check(Backend& backend, const Case& c) {
  const auto& s = c.shape;
  SCOPED_TRACE(testing::Message() << c.sequences << " sequences of " << s.positions << ", heads "
                                  << s.heads << " over " << s.kv_heads << " of " << s.head_dim
                                  << ", group " << s.group << " from " << s.first_query << ", "
                                  << name_of(c.type));
  const Outcome run(c, backend);
  const Matrix qkv = run.qkv.values(), q = columns(qkv, 0, run.q_cols),
               k = columns(qkv, run.q_cols, run.k_cols),
               v = columns(qkv, run.q_cols + run.k_cols, run.k_cols);
  const auto want = attention(q, k, v, s);
  const auto gradients = attention_backward(run.d_out.values(), q, k, v, s);

  // A score is a sum of D products, and what it is off by enters p as a factor; then T products are
  // added, for d_k and d_v over all heads of the group: relative to the largest result, at most an
  // f32 rounding for each.
  const double terms = static_cast<double>(s.head_dim + s.positions * s.group + 16);
  const double error = 2 * terms * rounding(DType::f32);
  // In bf16 p is rounded before it is multiplied, each by at most this of itself; a query's p sum
  // to 1, and no value is above 1.
  const double p_error = c.type == DType::f32 ? 0 : rounding(c.type);
  EXPECT_TRUE(close(run.out, want.out, stored(c.type, error + p_error)));
  EXPECT_TRUE(close(run.stats, want.lse, stored(DType::f32, error * (1 + largest(want.lse)))));

  // delta is made from `out` as it was stored: a sum of D roundings of products below 1, by which
  // every d_score is off in proportion to p, and p sums to 1 over the keys of a query. d_score is
  // then rounded itself: scale · p times the difference of two sums of D products below 1.
  const double delta_error =
      c.type == DType::f32 ? 0 : 3 * s.scale * static_cast<double>(s.head_dim) * rounding(c.type);
  const auto check_part = [&](const char* name, std::int64_t begin, const Matrix& part,
                              double extra) {
    EXPECT_TRUE(close(columns(run.d_qkv.values(), begin, part.cols), part,
                      stored(c.type, error * (1 + largest(part)) + extra)))
        << name;
  };
  const double queries = static_cast<double>(s.positions * s.group);
  check_part("d_q", 0, gradients.d_q, delta_error);
  check_part("d_k", run.q_cols, gradients.d_k, delta_error * std::log(queries + 1));
  check_part("d_v", run.q_cols + run.k_cols, gradients.d_v, p_error * std::log(queries + 1));
  EXPECT_TRUE(run.d_qkv.gap_untouched());
}

}  // namespace

TEST(Attention, EqualsPlainLoopsForwardAndBackwardForAnyHeadsGroupsAndLengths) {
  const auto backend = make_cpu_backend(1);
  for (DType type : {DType::f32, DType::bf16}) {
    check(*backend, {1, {1, 1, 1, 1}, type});
    check(*backend, {2, {3, 2, 2, 5, 1, 0, 0.5}, type});
    check(*backend, {3, {17, 3, 3, 16, 1, 0, 0.25}, type});
    check(*backend, {2, {64, 2, 2, 64, 1, 0, 0.125}, type});
    check(*backend, {1, {65, 4, 2, 24, 2, 0, 0.2}, type});
    check(*backend, {2, {130, 6, 2, 40, 3, 0, 0.15}, type});
    check(*backend, {1, {200, 1, 1, 80, 1, 0, 0.1}, type});
  }
}

TEST(Attention, WithAWindowSeesItsKeysAloneOnBothSidesOfABlockAndBeyondTheSequence) {
  const auto backend = make_cpu_backend(1);
  for (DType type : {DType::f32, DType::bf16})
    for (std::int64_t window : {1, 2, 63, 64, 65, 66, 100, 128, 129, 199, 200, 1000})
      check(*backend, {1, {200, 4, 2, 8, 2, 0, 0.3, window}, type});
  for (std::int64_t window : {1, 5, 17, 40}) {
    check(*backend, {3, {17, 2, 1, 16, 2, 0, 0.3, window}, DType::f32});
    check(*backend, {2, {33, 3, 2, 8, 4, 3, 0.3, window}, DType::f32});
  }
}

TEST(Attention, WithAWindowOfTheWholeSequenceHasTheBitsOfNone) {
  const auto backend = make_cpu_backend(1);
  const Outcome none({2, {130, 4, 2, 24, 2, 0, 0.3}, DType::f32}, *backend),
      whole({2, {130, 4, 2, 24, 2, 0, 0.3, 130}, DType::f32}, *backend);
  EXPECT_TRUE(none.out.memory() == whole.out.memory());
  EXPECT_TRUE(none.d_qkv.memory() == whole.d_qkv.memory());
}

TEST(Attention, ReadsTheRightKeyValueHeadWhereARankBeginsInsideAGroup) {
  const auto backend = make_cpu_backend(1);
  for (std::int64_t first = 0; first < 4; ++first) {
    check(*backend, {2, {33, 3, 2, 8, 4, first, 0.3}, DType::f32});
    check(*backend, {1, {70, 1, 1, 8, 4, first, 0.3}, DType::f32});
  }
}

TEST(Attention, GradientsOfAKeyValueHeadThatNoQueryUsesAreZero) {
  const auto backend = make_cpu_backend(1);
  check(*backend, {1, {20, 2, 3, 8, 2, 0, 0.3}, DType::f32});
}

TEST(Attention, SurvivesScoresBeyondTheRangeOfExp) {
  const auto backend = make_cpu_backend(1);
  const Case c{1, {40, 1, 1, 4, 1, 0, 300}, DType::f32};
  const Outcome run(c, *backend);
  for (double value : run.out.values().values) EXPECT_LE(std::abs(value), 1.0001);
  for (double value : run.d_qkv.values().values) EXPECT_TRUE(std::isfinite(value));
}

TEST(Attention, RefusesKeysTooNarrowForTheHeads) {
  const auto backend = make_cpu_backend(1);
  const Operand q(8, 16, DType::f32), k(8, 4, DType::f32), stats(8, 4, DType::f32);
  EXPECT_THAT(
      [&] {
        backend->attention({.q = q,
                            .k = k,
                            .v = k,
                            .out = q,
                            .stats = stats,
                            .positions = 8,
                            .heads = 4,
                            .head_dim = 4,
                            .group = 2});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("k is (8,4) f32, too narrow for 4 heads")));
}
