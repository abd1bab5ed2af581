#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr double kEps = 1e-5;

/// LayerNorm with rows cut into `pieces`, as ranks along y hold them.
struct Outcome {
  Outcome(Backend& backend, std::int64_t R, std::int64_t C, DType type, std::int64_t pieces)
      : width(C),
        inp(random_values("inp", R, C, type), type, 3),
        weight(random_values("weight", 1, C, type), type),
        bias(random_values("bias", 1, C, type), type),
        d_out(random_values("d_out", R, C, type), type, 1),
        residual(random_values("residual", R, C, type), type),
        out(R, C, type, 2),
        d_inp(R, C, type, 4),
        d_weight(Matrix(1, C, 0.5), DType::f32),
        d_bias(Matrix(1, C, -0.5), DType::f32),
        stats(R, 2, DType::f32) {
    const std::int64_t each = C / pieces;
    const auto part = [&](const Operand& all, std::int64_t p) {
      return all.view().col_range(p * each, each);
    };
    const Operand moments(pieces * R, 2, DType::f32);
    for (std::int64_t p = 0; p < pieces; ++p)
      backend.run(ops::RowMoments{moments.view().row_range(p * R, R), part(inp, p)});
    backend.run(ops::CombineMoments{stats, moments, each, static_cast<float>(kEps)});

    Matrix total(R, 2);
    for (std::int64_t p = 0; p < pieces; ++p) {
      const Operand sums(R, 2, DType::f32);
      backend.run(
          ops::LayerNorm{part(out, p), part(inp, p), part(weight, p), part(bias, p), stats});
      backend.run(ops::LayerNormSums{sums, part(d_out, p), part(inp, p), part(weight, p), stats});
      backend.run(ops::LayerNormWeightBackward{part(d_weight, p), part(d_bias, p), part(d_out, p),
                                               part(inp, p), stats});
      const Matrix piece = sums.values();
      for (std::size_t i = 0; i < total.values.size(); ++i) total.values[i] += piece.values[i];
    }
    const Operand sums(total, DType::f32);
    for (std::int64_t p = 0; p < pieces; ++p)
      backend.run(ops::LayerNormBackward{.d_inp = part(d_inp, p),
                                         .d_out = part(d_out, p),
                                         .inp = part(inp, p),
                                         .weight = part(weight, p),
                                         .stats = stats,
                                         .sums = sums,
                                         .residual = part(residual, p),
                                         .width = C});
  }

  std::int64_t width;
  Operand inp, weight, bias, d_out, residual, out, d_inp, d_weight, d_bias, stats;
};

void check(Backend& backend, std::int64_t R, std::int64_t C, DType type, std::int64_t pieces) {
  SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type) << " in "
                                  << pieces << " pieces");
  const Outcome run(backend, R, C, type, pieces);
  const Matrix x = run.inp.values(), w = run.weight.values(), dy = run.d_out.values();
  const Matrix want = layer_norm(x, w, run.bias.values(), kEps);
  auto d = layer_norm_backward(dy, x, w, kEps);
  const Matrix residual = run.residual.values(), stats = run.stats.values();
  for (std::size_t i = 0; i < d.d_inp.values.size(); ++i) d.d_inp.values[i] += residual.values[i];
  for (double& value : d.d_weight.values) value += 0.5;
  for (double& value : d.d_bias.values) value -= 0.5;

  // Mean and variance are sums of C terms below 1, so rstd has a relative error of C roundings, and
  // a large rstd (nearly equal elements) magnifies the mean's error by its value.
  double rstd = 0;
  for (std::int64_t r = 0; r < R; ++r) rstd = std::max(rstd, stats(r, 1));
  const double error = 4.0 * static_cast<double>(C + 4) * rounding(DType::f32) * (1 + rstd);
  EXPECT_TRUE(close(run.out, want, stored(type, error)));
  EXPECT_TRUE(close(run.d_inp, d.d_inp, stored(type, error * (1 + rstd) * (1 + rstd))));
  const double rows = static_cast<double>(R + 4);
  EXPECT_TRUE(close(run.d_weight, d.d_weight, {rows * error * (1 + rstd), rounding(DType::f32)}));
  EXPECT_TRUE(close(run.d_bias, d.d_bias, {rows * rows * rounding(DType::f32), 0}));
}

}  // namespace

TEST(LayerNorm, EqualsPlainLoopsForwardAndBackwardWholeAndInPieces) {
  const auto backend = test_backend();
  for (DType type : kModelTypes) {
    check(*backend, 1, 3, type, 1);
    check(*backend, 3, 17, type, 1);
    check(*backend, 5, 51, type, 3);
    check(*backend, 130, 768, type, 1);
    check(*backend, 129, 768, type, 6);
  }
}

TEST(AddMoments, EqualsTheSumAndItsMomentsAndHasTheBitsOfSeparateOperations) {
  for (DType type : kModelTypes)
    for (const auto& [R, C] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 63}, {5, 200}, {130, 768}}) {
      SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type));
      const Matrix x = random_values("x", R, C, type), y = random_values("y", R, C, type);
      const Operand a(x, type, 3), b(y, type), out(R, C, type, 1), moments(R, 2, DType::f32),
          sum(R, C, type, 1), apart(R, 2, DType::f32);
      for (int threads : {1, 2, 3}) {
        const auto backend = test_backend(threads);
        backend->run(ops::AddMoments{out, moments, a, b});
        backend->run(ops::Add{sum, a, b});
        backend->run(ops::RowMoments{apart, sum});
        EXPECT_TRUE(out.memory() == sum.memory());
        EXPECT_TRUE(moments.memory() == apart.memory());
      }
      Matrix want = x, stats(R, 2);
      for (std::size_t i = 0; i < want.values.size(); ++i) want.values[i] += y.values[i];
      EXPECT_TRUE(close(out, want, stored(type, 0)));
      want = out.values();  // the moments are those of the stored sum
      for (std::int64_t r = 0; r < R; ++r) {
        for (std::int64_t c = 0; c < C; ++c) stats(r, 0) += want(r, c) / static_cast<double>(C);
        for (std::int64_t c = 0; c < C; ++c)
          stats(r, 1) += (want(r, c) - stats(r, 0)) * (want(r, c) - stats(r, 0));
      }
      // C terms below 2 in the mean and below 16 in the squares, each with a few roundings.
      const double terms = static_cast<double>(C + 4);
      EXPECT_TRUE(close(moments, stats, {64 * terms * rounding(DType::f32), 1e-6}));
    }
}

TEST(AddMoments, RefusesSummandsOfAnotherShape) {
  const Operand a(4, 8, DType::f32), b(4, 7, DType::f32), moments(4, 2, DType::f32);
  expect_refusal("add_moments: b is (4,7)", ops::AddMoments{a, moments, a, b});
}

namespace {

/// Gradients of a norm, of which those of the weights are added to.
struct Gradients {
  Gradients(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t apart)
      : d_inp(rows, cols, dtype, apart),
        d_weight(Matrix(1, cols, 0.5), DType::f32),
        d_bias(Matrix(1, cols, -0.5), DType::f32) {}
  Operand d_inp, d_weight, d_bias;
};

/// On a CPU to the bit.
void expect_alike(Backend& backend, const Gradients& whole, const Gradients& apart) {
  const std::int64_t R = whole.d_inp.view().rows, C = whole.d_inp.view().cols;
  const DType type = whole.d_inp.view().dtype;
  if (backend.device().name() == "cpu") {
    EXPECT_TRUE(whole.d_inp.memory() == apart.d_inp.memory());
    EXPECT_TRUE(whole.d_weight.memory() == apart.d_weight.memory());
    EXPECT_TRUE(whole.d_bias.memory() == apart.d_bias.memory());
    return;
  }
  // Sums of C and of R terms below 4 in another order; of stored values one may be rounded up where
  // the other is rounded down.
  const double terms = static_cast<double>(C + 4), rows = static_cast<double>(R + 4),
               error = 16 * terms * rounding(DType::f32);
  EXPECT_TRUE(close(whole.d_inp, apart.d_inp.values(), {error, 2.02 * rounding(type)}));
  const double of_sums = 16 * rows * rounding(DType::f32);
  EXPECT_TRUE(close(whole.d_weight, apart.d_weight.values(), {of_sums, 1e-6}));
  EXPECT_TRUE(close(whole.d_bias, apart.d_bias.values(), {of_sums, 1e-6}));
}

/// What NormBackward adds to or leaves out.
struct NormCase {
  std::int64_t R, C;
  bool about_zero = false, residual = true, weight = true, bias = true;
  std::int64_t gap = 0;  // after each row
};

/// Checks that NormBackward computes what the separate operations do: on a CPU to the bit.
void check_whole(Backend& backend, const NormCase& of, DType type) {
  const auto [R, C, about_zero, with_residual, with_weight, with_bias, gap] = of;
  SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type)
                                  << (about_zero ? " about zero" : ""));
  const Operand inp(random_values("inp", R, C, type), type, gap),
      weight(random_values("weight", 1, C, type), type),
      d_out(random_values("d_out", R, C, type), type, gap),
      residual(random_values("residual", R, C, type), type, gap);
  Matrix of_rows(R, 2);
  for (std::int64_t r = 0; r < R; ++r) {
    of_rows(r, 0) = about_zero ? 0 : 0.125 * static_cast<double>(r % 3);
    of_rows(r, 1) = 1 + 0.25 * static_cast<double>(r % 5);
  }
  const Operand stats(of_rows, DType::f32), sums(R, 2, DType::f32);
  const Gradients whole(R, C, type, gap), apart(R, C, type, gap);
  const auto if_wanted = [](bool wanted, const Operand& operand) {
    return wanted ? operand.view() : View{};
  };
  backend.run(ops::NormBackward{.d_inp = whole.d_inp,
                                .d_weight = if_wanted(with_weight, whole.d_weight),
                                .d_bias = if_wanted(with_bias, whole.d_bias),
                                .d_out = d_out,
                                .inp = inp,
                                .weight = weight,
                                .stats = stats,
                                .residual = if_wanted(with_residual, residual),
                                .about_zero = about_zero});
  if (about_zero)
    backend.run(ops::RmsNormSums{sums, d_out, inp, weight, stats});
  else
    backend.run(ops::LayerNormSums{sums, d_out, inp, weight, stats});
  backend.run(ops::LayerNormBackward{.d_inp = apart.d_inp,
                                     .d_out = d_out,
                                     .inp = inp,
                                     .weight = weight,
                                     .stats = stats,
                                     .sums = sums,
                                     .residual = if_wanted(with_residual, residual),
                                     .width = C});
  if (with_weight)
    backend.run(ops::LayerNormWeightBackward{apart.d_weight, if_wanted(with_bias, apart.d_bias),
                                             d_out, inp, stats});
  expect_alike(backend, whole, apart);
}

}  // namespace

TEST(NormBackward, EqualsTheSeparateOperationsForRowsOfAnyLength) {
  const auto backend = test_backend();
  for (DType type : kModelTypes) {
    check_whole(*backend, {1, 1}, type);
    check_whole(*backend, {5, 51}, type);
    check_whole(*backend, {70, 8, false, false}, type);
    check_whole(*backend, {3, 264, true, true, true, false}, type);
    check_whole(*backend, {130, 768}, type);
    check_whole(*backend, {6700, 16}, type);  // more rows than the fewest of a block
    check_whole(*backend, {37, 1600, true, false, true, false}, type);
    check_whole(*backend, {19, 4096}, type);
    check_whole(*backend, {18, 6144, true}, type);
    check_whole(*backend, {17, 8192}, type);
    check_whole(*backend, {2, 16384}, type);  // longer than a block of threads keeps
    check_whole(*backend, {33, 768, false, true, true, true, 3}, type);  // rows are not aligned
    check_whole(*backend, {33, 768, false, true, true, true, 8}, type);
    check_whole(*backend, {40, 768, true, true, false, false}, type);
  }
}

TEST(NormForward, HasTheBitsOfTheSeparateOperations) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const bool about_zero : {false, true})
      for (const auto& [R, C] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                 {3, 63},
                                 {5, 200},
                                 {130, 768},
                                 {2, 9000}}) {
        SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type));
        const Operand inp(random_values("inp", R, C, type), type, 3),
            weight(random_values("weight", 1, C, type), type),
            bias(random_values("bias", 1, C, type), type), moments(R, 2, DType::f32),
            of_norm(R, 2, DType::f32), stats(R, 2, DType::f32), out(R, C, type, 1);
        backend->run(ops::RowMoments{moments, inp});
        if (about_zero)
          backend->run(ops::MomentsAboutZero{of_norm, moments, C});
        else
          backend->run(ops::Cast{of_norm, moments});
        backend->run(ops::CombineMoments{stats, of_norm, C, static_cast<float>(kEps)});
        backend->run(ops::LayerNorm{out, inp, weight, about_zero ? View{} : bias.view(), stats});
        for (const bool given : {false, true}) {
          const Operand whole(R, C, type, 1), whole_stats(R, 2, DType::f32);
          backend->run(ops::NormForward{.out = whole,
                                        .stats = whole_stats,
                                        .inp = inp,
                                        .moments = given ? moments.view() : View{},
                                        .weight = weight,
                                        .bias = about_zero ? View{} : bias.view(),
                                        .eps = static_cast<float>(kEps),
                                        .about_zero = about_zero});
          EXPECT_TRUE(whole.memory() == out.memory());
          EXPECT_TRUE(whole_stats.memory() == stats.memory());
        }
      }
}

TEST(NormBackward, RefusesABiasWithoutAWeight) {
  const Operand x(4, 8, DType::f32), row(1, 8, DType::f32), stats(4, 2, DType::f32);
  expect_refusal(
      "norm_backward: d_bias without d_weight",
      ops::NormBackward{
          .d_inp = x, .d_bias = row, .d_out = x, .inp = x, .weight = row, .stats = stats});
}

TEST(LayerNorm, WithoutBiasAndResidualLeavesThemOut) {
  const auto backend = test_backend();
  const Outcome full(*backend, 3, 17, DType::f32, 1);
  const Operand out(3, 17, DType::f32), d_inp(3, 17, DType::f32), sums(3, 2, DType::f32);
  backend->run(ops::LayerNorm{out, full.inp, full.weight, {}, full.stats});
  backend->run(ops::LayerNormSums{sums, full.d_out, full.inp, full.weight, full.stats});
  backend->run(ops::LayerNormBackward{.d_inp = d_inp,
                                      .d_out = full.d_out,
                                      .inp = full.inp,
                                      .weight = full.weight,
                                      .stats = full.stats,
                                      .sums = sums,
                                      .width = 17});
  Matrix want = full.out.values(), d_want = full.d_inp.values();
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 17; ++c) {
      want(r, c) -= full.bias.values()(0, c);
      d_want(r, c) -= full.residual.values()(r, c);
    }
  EXPECT_TRUE(close(out, want, {8 * rounding(DType::f32), 0}));
  EXPECT_TRUE(close(d_inp, d_want, {8 * rounding(DType::f32) * (1 + largest(d_want)), 0}));
}

TEST(LayerNorm, KeepsItsDigitsIfTheMeanIsLargeComparedToTheDeviations) {
  const auto backend = test_backend();
  Matrix x = random_values("x", 1, 300, DType::f32);
  for (double& value : x.values) value += 1000;
  const Operand inp(x, DType::f32), moments(2, 2, DType::f32), stats(1, 2, DType::f32);
  backend->run(ops::RowMoments{moments.view().row_range(0, 1), inp.view().col_range(0, 150)});
  backend->run(ops::RowMoments{moments.view().row_range(1, 1), inp.view().col_range(150, 150)});
  backend->run(ops::CombineMoments{stats, moments, 150, 0});
  const Matrix exact = inp.values();
  double mean = 0, variance = 0;
  for (double value : exact.values) mean += value / 300;
  for (double value : exact.values) variance += (value - mean) * (value - mean) / 300;
  // One pass over squares would lose all digits: 1000² · 2^-24 is 0.06, the variance 0.33. Here the
  // mean is off by up to 300 roundings of 1000, and the variance by the square of that.
  EXPECT_NEAR(stats.values()(0, 1), 1 / std::sqrt(variance), 1e-3);
}

TEST(LayerNorm, RefusesAWidthBelowItsPiece) {
  const auto backend = test_backend();
  const Outcome run(*backend, 2, 8, DType::f32, 1);
  expect_refusal("width 4 of whole rows, want at least the columns of inp (2,8)",
                 ops::LayerNormBackward{.d_inp = run.d_inp,
                                        .d_out = run.d_out,
                                        .inp = run.inp,
                                        .weight = run.weight,
                                        .stats = run.stats,
                                        .sums = run.stats,
                                        .width = 4});
}
