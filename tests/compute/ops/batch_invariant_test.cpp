// With Backend::set_batch_invariant(), what a generation computes token by token has the bits of
// what training computes for whole sequences.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/quantization.h"

#include "tests/compute/ops/harness.h"
#include "tests/support/sanitized.h"

using namespace axonn;
using reference::Matrix;
using testing_support::sanitized;

namespace {

/// Null if the backend under test cannot do that.
std::unique_ptr<Backend> invariant_backend(int threads) {
  auto backend = test_backend(threads);
  return backend->set_batch_invariant(true) ? std::move(backend) : nullptr;
}

Matrix rows_of(const Matrix& all, std::int64_t first, std::int64_t count) {
  Matrix part(count, all.cols);
  std::copy_n(all.values.begin() + first * all.cols, count * all.cols, part.values.begin());
  return part;
}

struct Product {
  std::int64_t N, K;
  DType type, out_type;
  bool bias = false, accumulate = false;

  Matrix b() const { return random_values("b", N, K, type); }
  Matrix row_of_bias() const { return random_values("bias", 1, N, type); }
};

/// A forward product of rows of a, added to rows of `old`.
Matrix multiply(Backend& backend, const Product& c, const Matrix& a, const Matrix& old) {
  const Operand rows(a, c.type, 1), b(c.b(), c.type, 3), bias(c.row_of_bias(), c.type),
      out(old, c.out_type, 2);
  backend.matmul({.out = out,
                  .a = rows,
                  .b = b,
                  .b_transposed = true,
                  .bias = c.bias ? bias.view() : View{},
                  .accumulate = c.accumulate});
  EXPECT_TRUE(out.gap_untouched());
  return out.values();
}

/// Expects the result of plain loops, and that any rows have the same bits alone as with others.
void expect_invariant(Backend& many, Backend& one, const Product& c) {
  constexpr std::int64_t kRows = 300;
  const Matrix a = random_values("a", kRows, c.K, c.type),
               old = random_values("out", kRows, c.N, c.out_type);
  const Matrix all = multiply(many, c, a, old);
  Matrix want = matmul(a, transpose(c.b()));
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t n = 0; n < c.N; ++n)
      want(r, n) += (c.bias ? c.row_of_bias()(0, n) : 0) + (c.accumulate ? old(r, n) : 0);
  EXPECT_TRUE(
      close(all, want, stored(c.out_type, static_cast<double>(c.K + 8) * rounding(DType::f32))));
  using Range = std::pair<std::int64_t, std::int64_t>;  // the first row, and their number
  for (const auto& [first, count] : {Range{0, 1},
                                     {7, 1},
                                     {299, 1},
                                     {3, 2},
                                     {100, 3},
                                     {47, 5},
                                     {0, 48},
                                     {9, 49},
                                     {130, 64},
                                     {1, 200},
                                     {0, 300}})
    ASSERT_EQ(multiply(one, c, rows_of(a, first, count), rows_of(old, first, count)).values,
              rows_of(all, first, count).values)
        << "rows " << first << " to " << first + count << " of N " << c.N << ", K " << c.K;
}

/// Attention over one sequence, and what a cache computes of it, some rows at a time.
class CachedSequence {
 public:
  CachedSequence(const reference::AttentionShape& shape, std::int64_t entries, DType type,
                 bool codes)
      : shape_(shape),
        entries_(entries),
        type_(type),
        codes_(codes),
        q_(random_values("q", shape.positions, shape.heads * shape.head_dim, type)),
        k_(random_values("k", shape.positions, shape.kv_heads * shape.head_dim, type)),
        v_(random_values("v", shape.positions, shape.kv_heads * shape.head_dim, type)),
        keys_(3 * shape.kv_heads * entries, columns(), codes ? DType::u8 : type),
        values_(3 * shape.kv_heads * entries, columns(), codes ? DType::u8 : type) {}

  struct Results {
    Matrix out, stats;
  };

  Results whole(Backend& backend) const {
    const Operand q(q_, type_), k(k_, type_, 1), v(v_, type_, 2), starts(chunk_starts()),
        out(q_.rows, q_.cols, type_), stats(q_.rows, shape_.heads, DType::f32);
    for (const Operand* const rounded : {&k, &v})
      if (codes_)
        backend.run(ops::RoundHeads{.out = *rounded, .inp = *rounded, .head_dim = shape_.head_dim});
    backend.attention({.q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .stats = stats,
                       .positions = shape_.positions,
                       .heads = shape_.heads,
                       .head_dim = shape_.head_dim,
                       .group = shape_.group,
                       .first_query = shape_.first_query,
                       .window = shape_.window,
                       .scale = static_cast<float>(shape_.scale),
                       .cap = static_cast<float>(shape_.cap),
                       .starts = shape_.chunks ? starts.view() : View{}});
    return {out.values(), stats.values()};
  }

  /// `count` rows from the next position on, in slot 1.
  Results next(Backend& backend, std::int64_t count) {
    std::vector<std::int32_t> slots(count, 1), positions;
    for (std::int64_t i = 0; i < count; ++i)
      positions.push_back(static_cast<std::int32_t>(at_ + i));
    const Operand slot(slots), position(positions), q(rows_of(q_, at_, count), type_, 3),
        k(rows_of(k_, at_, count), type_), v(rows_of(v_, at_, count), type_, 1),
        out(count, q_.cols, type_, 2), stats(count, shape_.heads, DType::f32);
    for (const auto& [kept, inp] : {std::pair{&keys_, &k}, {&values_, &v}})
      backend.run(ops::KeepHeads{.kept = *kept,
                                 .inp = *inp,
                                 .slots = slot,
                                 .positions = position,
                                 .entries = entries_,
                                 .head_dim = shape_.head_dim});
    backend.cached_attention({.q = q,
                              .keys = keys_,
                              .values = values_,
                              .out = out,
                              .stats = stats,
                              .slots = slot,
                              .positions = position,
                              .entries = entries_,
                              .longest = shape_.positions,
                              .heads = shape_.heads,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim,
                              .group = shape_.group,
                              .first_query = shape_.first_query,
                              .window = shape_.window,
                              .chunks = shape_.chunks,
                              .scale = static_cast<float>(shape_.scale),
                              .cap = static_cast<float>(shape_.cap)});
    EXPECT_TRUE(out.gap_untouched());
    at_ += count;
    return {out.values(), stats.values()};
  }
  std::int64_t at() const { return at_; }

 private:
  std::int64_t columns() const {
    return codes_ ? HeadCodes::bytes(shape_.head_dim) : shape_.head_dim;
  }
  std::vector<std::int32_t> chunk_starts() const {
    std::vector<std::int32_t> starts;
    for (std::int64_t t = 0; t < shape_.positions && shape_.chunks; ++t)
      starts.push_back(static_cast<std::int32_t>(t / shape_.window * shape_.window));
    return starts;
  }

  reference::AttentionShape shape_;
  std::int64_t entries_, at_ = 0;
  DType type_;
  bool codes_;
  Matrix q_, k_, v_;
  Operand keys_, values_;
};

/// Expects every position's bits, whether it comes alone or with up to six others.
void expect_same_attention(Backend& many, Backend& one, const reference::AttentionShape& shape,
                           std::int64_t entries, bool codes = false) {
  for (const DType type : kModelTypes) {
    CachedSequence sequence(shape, entries, type, codes);
    const auto want = sequence.whole(many);
    for (std::int64_t step = 0; sequence.at() < shape.positions; ++step) {
      const std::int64_t first = sequence.at(), count = std::min(shape.positions - first,
                                                                 step % 3 == 2 ? step % 7 + 1 : 1);
      const auto got = sequence.next(one, count);
      ASSERT_EQ(got.out.values, rows_of(want.out, first, count).values) << "position " << first;
      ASSERT_EQ(got.stats.values, rows_of(want.stats, first, count).values) << "position " << first;
    }
  }
}

}  // namespace

TEST(BatchInvariant, RowsOfForwardProductsHaveTheSameBitsAloneAndWithOthers) {
  const auto many = invariant_backend(2), one = invariant_backend(1);
  if (!many) GTEST_SKIP() << "this backend is not batch invariant";
  for (const DType type : kModelTypes) {
    expect_invariant(*many, *one, {130, 96, type, type, true});
    expect_invariant(*many, *one, {65, 333, type, DType::f32, false, true});
    expect_invariant(*many, *one, {9, 1, type, type});
    expect_invariant(*many, *one, {70, 1100, type, type, true});
    expect_invariant(*many, *one, {22, 2400, type, DType::f32});
  }
}

TEST(BatchInvariant, ProductsInOneCallHaveTheBitsOfSingleOnes) {
  const auto backend = invariant_backend(2);
  if (!backend) GTEST_SKIP() << "this backend is not batch invariant";
  const Product c{70, 50, DType::f32, DType::f32};
  const Matrix a = random_values("a", 90, c.K, c.type), none(90, c.N);
  const Operand rows(a, c.type), b(c.b(), c.type), out(90, c.N, c.type);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return Matmul{.out = out.view().row_range(first, count),
                  .a = rows.view().row_range(first, count),
                  .b = b,
                  .b_transposed = true};
  };
  const std::vector<Matmul> all{part(0, 1), part(1, 0), part(1, 60), part(61, 29)};
  backend->matmuls(all);
  EXPECT_EQ(out.values().values, multiply(*backend, c, a, none).values);
}

TEST(BatchInvariant, NoChoiceOfATunerChangesThem) {
  const auto backend = invariant_backend(1);
  if (!backend) GTEST_SKIP() << "this backend is not batch invariant";
  const MatmulShape shape{.M = 512, .N = 512, .K = 512, .b_transposed = true};
  const auto ways = backend->matmul_ways(shape);
  ASSERT_EQ(ways.size(), 1U);
  EXPECT_TRUE(backend->set_matmul_way(shape, ways.front()));
  EXPECT_FALSE(backend->set_matmul_way(shape, test_backend(1)->matmul_ways(shape).front()));
}

TEST(BatchInvariant, CachedAttentionHasTheBitsOfAttention) {
  const auto many = invariant_backend(2), one = invariant_backend(1);
  if (!many) GTEST_SKIP() << "this backend is not batch invariant";
  expect_same_attention(*many, *one, {200, 3, 3, 16, 1, 0, 0.25}, 200);
  expect_same_attention(*many, *one, {150, 6, 2, 40, 3, 0, 0.15}, 170);
  expect_same_attention(*many, *one, {70, 20, 1, 5, 20, 0, 0.5}, 70);  // more heads than lanes
  expect_same_attention(*many, *one, {130, 3, 2, 80, 4, 3, 0.1}, 130);
  expect_same_attention(*many, *one, {65, 2, 2, 64, 1, 0, 2.0}, 65);
}

TEST(BatchInvariant, CachedAttentionToCodesHasTheBitsOfAttentionToTheirValues) {
  const auto many = invariant_backend(2), one = invariant_backend(1);
  if (!many || !many->reads_kept_codes()) GTEST_SKIP() << "not on this backend";
  expect_same_attention(*many, *one, {150, 6, 2, 64, 3, 0, 0.15}, 170, true);
  expect_same_attention(*many, *one, {130, 3, 2, 80, 4, 3, 0.1}, 130, true);
  expect_same_attention(*many, *one, {130, 4, 2, 24, 2, 0, 0.3, 37}, 43, true);
}

TEST(BatchInvariant, SoItIsWithWindowsChunksAndCaps) {
  const auto many = invariant_backend(2), one = invariant_backend(1);
  if (!many) GTEST_SKIP() << "this backend is not batch invariant";
  using Lengths = std::vector<std::int64_t>;
  for (const std::int64_t window : sanitized() ? Lengths{37} : Lengths{1, 37, 64, 100})
    for (const std::int64_t more : {6, 63, 300}) {  // entries of a slot beyond the window
      reference::AttentionShape shape{230, 4, 2, 24, 2, 0, 0.3, window};
      expect_same_attention(*many, *one, shape, window + more);
      shape.cap = 0.6;
      expect_same_attention(*many, *one, shape, window + more);
      shape.chunks = true;
      expect_same_attention(*many, *one, shape, window + more);
    }
}
