#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// (R, k): different experts below E for each row, ascending; expert `busy` in each of them.
Matrix chosen_experts(std::int64_t R, std::int64_t k, std::int64_t E, std::int32_t busy) {
  Matrix ids(R, k);
  for (std::int64_t r = 0; r < R; ++r) {
    const std::vector<std::int32_t> keys = random_ids("keys " + std::to_string(r), E, 1 << 30);
    std::vector<std::int32_t> order(E);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::int32_t i) { return i == busy ? -1 : keys[i]; });
    std::sort(order.begin(), order.begin() + k);
    for (std::int64_t j = 0; j < k; ++j) ids(r, j) = order[j];
  }
  return ids;
}

/// (R, k): the copy_rows of all copies, ordered by expert, then by row.
Matrix ordered_places(const Matrix& ids, std::int64_t E) {
  Matrix copy_rows(ids.rows, ids.cols);
  double next = 0;
  for (std::int64_t e = 0; e < E; ++e)
    for (std::size_t i = 0; i < ids.values.size(); ++i)
      if (ids.values[i] == static_cast<double>(e)) copy_rows.values[i] = next++;
  return copy_rows;
}

/// A size of the operations that move rows.
struct Moved {
  std::int64_t R, k, C;
};
constexpr Moved kMoved[] = {{1, 1, 1},    {7, 2, 24}, {5, 8, 65},
                            {70, 3, 200}, {2, 64, 9}, {300, 2, 128}};

/// The copies of rows at their copy_rows.
Matrix spread(const Matrix& rows, const Matrix& copy_rows) {
  Matrix out(copy_rows.rows * copy_rows.cols, rows.cols);
  for (std::int64_t r = 0; r < copy_rows.rows; ++r)
    for (std::int64_t j = 0; j < copy_rows.cols; ++j)
      for (std::int64_t c = 0; c < rows.cols; ++c)
        out(static_cast<std::int64_t>(copy_rows(r, j)), c) = rows(r, c);
  return out;
}

/// The sums of copies, and those of their magnitudes.
struct Combined {
  Matrix sums, sizes;
};
Combined combine(const Matrix& copies, const Matrix& copy_rows, const Matrix& weights) {
  Combined out{Matrix(copy_rows.rows, copies.cols), Matrix(copy_rows.rows, copies.cols)};
  for (std::int64_t r = 0; r < copy_rows.rows; ++r)
    for (std::int64_t j = 0; j < copy_rows.cols; ++j)
      for (std::int64_t c = 0; c < copies.cols; ++c) {
        const double term = weights(r, j) * copies(static_cast<std::int64_t>(copy_rows(r, j)), c);
        out.sums(r, c) += term;
        out.sizes(r, c) += std::abs(term);
      }
  return out;
}

Matrix some_places(const Moved& size) {
  const std::int64_t E = size.k + 2;
  return ordered_places(chosen_experts(size.R, size.k, E, 1), E);
}

}  // namespace

TEST(ExpertOrder, OrdersCopiesByExpertThenByRow) {
  for (const std::int64_t R : {0, 1, 63, 64, 65, 400, 4500})
    for (const auto& [E, k] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {8, 2},
                               {40, 3},
                               {128, 8},
                               {6, 6},
                               {1024, 64}}) {
      if (R >= 400 && k == 64) continue;  // takes long as plain loops
      SCOPED_TRACE(testing::Message() << R << " rows, " << k << " of " << E);
      const Matrix ids = chosen_experts(R, k, E, static_cast<std::int32_t>(E / 2));
      const Operand inp(ids, DType::i32, 3), copy_rows(R, k, DType::i32, 1),
          counts(Matrix(1, E, 77), DType::i32);
      test_backend()->run(ops::ExpertOrder{.copy_rows = copy_rows, .counts = counts, .ids = inp});
      Matrix each(1, E);
      for (double id : ids.values) each(0, static_cast<std::int64_t>(id)) += 1;
      EXPECT_TRUE(close(counts, each, {}));
      EXPECT_TRUE(close(copy_rows, ordered_places(ids, E), {}));
    }
}

TEST(SpreadRows, CopiesEachRowToItsPlacesAndTheSumOfCopiesIsItsGradient) {
  for (const DType type : kModelTypes)
    for (const Moved& size : kMoved) {
      const auto [R, k, C] = size;
      SCOPED_TRACE(testing::Message() << R << ',' << k << ',' << C << ' ' << name_of(type));
      const auto backend = test_backend();
      const Matrix rows = random_values("rows", R, C, type), at = some_places(size),
                   d = random_values("d", R * k, C, type);
      const Operand inp(rows, type, 3), out(R * k, C, type, 5), copy_rows(at, DType::i32, 1),
          d_out(d, type, 8), d_inp(R, C, type, 1);
      backend->run(ops::SpreadRows{.out = out, .inp = inp, .copy_rows = copy_rows});
      EXPECT_TRUE(close(out, spread(rows, at), {}));
      backend->run(ops::CombineRows{.out = d_inp, .inp = d_out, .copy_rows = copy_rows});
      const Combined want = combine(d, at, Matrix(R, k, 1));
      const double error = static_cast<double>(k) * rounding(DType::f32) * largest(want.sizes);
      EXPECT_TRUE(close(d_inp, want.sums, stored(type, error)));
    }
}

TEST(CombineRows, AddsUpWeightedCopiesInF32AndRoundsOnce) {
  for (const DType type : kModelTypes)
    for (const Moved& size : kMoved)
      for (const std::int64_t gap : {0, 3}) {
        const auto [R, k, C] = size;
        SCOPED_TRACE(testing::Message() << R << ',' << k << ',' << C << ' ' << name_of(type));
        const Matrix copies = random_values("copies", R * k, C, type), at = some_places(size),
                     p = random_values("p", R, k, DType::f32);
        const Operand inp(copies, type, gap), out(R, C, type, gap), copy_rows(at, DType::i32, gap),
            weights(p, DType::f32, gap);
        test_backend()->run(
            ops::CombineRows{.out = out, .inp = inp, .copy_rows = copy_rows, .weights = weights});
        const Combined want = combine(copies, at, p);
        const double error =
            2 * static_cast<double>(k) * rounding(DType::f32) * largest(want.sizes);
        EXPECT_TRUE(close(out, want.sums, stored(type, error)));
      }
}

TEST(CombineRowsBackward, GivesTheGradientsOfCopiesAndWeightsAlsoInPlace) {
  for (const DType type : kModelTypes)
    for (const Moved& size : kMoved)
      for (const bool in_place : {false, true}) {
        const auto [R, k, C] = size;
        SCOPED_TRACE(testing::Message() << R << ',' << k << ',' << C << ' ' << name_of(type));
        const Matrix copies = random_values("copies", R * k, C, type), at = some_places(size),
                     p = random_values("p", R, k, DType::f32), d = random_values("d", R, C, type);
        const Operand inp(copies, type, 2), d_inp(R * k, C, type, 3), copy_rows(at, DType::i32),
            weights(p, DType::f32, 1), d_weights(R, k, DType::f32, 4), d_out(d, type, 3);
        test_backend()->run(ops::CombineRowsBackward{.d_inp = in_place ? inp : d_inp,
                                                     .d_weights = d_weights,
                                                     .d_out = d_out,
                                                     .inp = inp,
                                                     .copy_rows = copy_rows,
                                                     .weights = weights});
        Matrix want_inp(R * k, C), want_weights(R, k);
        for (std::int64_t r = 0; r < R; ++r)
          for (std::int64_t j = 0; j < k; ++j)
            for (std::int64_t c = 0; c < C; ++c) {
              const auto place = static_cast<std::int64_t>(at(r, j));
              want_inp(place, c) = p(r, j) * d(r, c);
              want_weights(r, j) += d(r, c) * copies(place, c);
            }
        EXPECT_TRUE(close(in_place ? inp : d_inp, want_inp, stored(type, 0)));
        const double error = static_cast<double>(C) * rounding(DType::f32) * static_cast<double>(C);
        EXPECT_TRUE(close(d_weights, want_weights, {error, 0}));
      }
}

TEST(SpreadRows, AndCombineRowsTakeNoRows) {
  const auto backend = test_backend();
  const Operand none(0, 6, DType::bf16), copy_rows(0, 2, DType::i32), weights(0, 2, DType::f32);
  backend->run(ops::SpreadRows{.out = none, .inp = none, .copy_rows = copy_rows});
  backend->run(
      ops::CombineRows{.out = none, .inp = none, .copy_rows = copy_rows, .weights = weights});
  backend->run(ops::CombineRowsBackward{.d_inp = none,
                                        .d_weights = weights,
                                        .d_out = none,
                                        .inp = none,
                                        .copy_rows = copy_rows,
                                        .weights = weights});
}

TEST(SpreadRows, AndCombineRowsRefuseOtherNumbersOfCopies) {
  const Operand rows(4, 6, DType::f32), copies(9, 6, DType::f32), copy_rows(4, 2, DType::i32),
      weights(4, 2, DType::f32);
  expect_refusal("spread_rows: (9,6) f32 for 2 copies of (4,6) f32, want 8 rows",
                 ops::SpreadRows{.out = copies, .inp = rows, .copy_rows = copy_rows});
  expect_refusal("combine_rows: (9,6) f32 for 2 copies of (4,6) f32, want 8 rows",
                 ops::CombineRows{.out = rows, .inp = copies, .copy_rows = copy_rows});
  expect_refusal("combine_rows_backward: (9,6) f32 for 2 copies of (4,6) f32, want 8 rows",
                 ops::CombineRowsBackward{.d_inp = copies,
                                          .d_weights = weights,
                                          .d_out = rows,
                                          .inp = copies,
                                          .copy_rows = copy_rows,
                                          .weights = weights});
}
