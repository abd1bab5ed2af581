#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Rows, columns and row padding: single elements, odd sizes, more than a tile, flat and strided.
constexpr std::int64_t kMatrixSizes[][3] = {{1, 1, 0}, {3, 17, 0},    {5, 17, 4},
                                            {0, 8, 0}, {1, 20000, 0}, {30, 768, 1}};

struct Function {
  ops::ActivationKind kind;
  double (*value)(double);
  double (*slope)(double);
};

constexpr Function kFunctions[] = {
    {ops::ActivationKind::relu, [](double x) { return x > 0 ? x : 0; },
     [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {ops::ActivationKind::silu, reference::silu, reference::silu_slope},
    {ops::ActivationKind::relu2, [](double x) { return x > 0 ? x * x : 0; },
     [](double x) { return x > 0 ? 2 * x : 0; }},
    {ops::ActivationKind::tanh, [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }},
};

/// f(a, b), element by element.
template <typename F>
Matrix joined(const Matrix& a, const Matrix& b, F f) {
  Matrix out = a;
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = f(a.values[i], b.values[i]);
  return out;
}

/// Checks the softmax of rows that are cut into pieces of `each` columns, and its gradient.
void check_softmax(std::int64_t R, std::int64_t pieces, std::int64_t each, DType type) {
  SCOPED_TRACE(testing::Message() << R << " rows of " << pieces << " times " << each << ' '
                                  << name_of(type));
  const auto backend = test_backend();
  Matrix x = random_values("x", R, pieces * each, type);
  for (double& value : x.values) value *= 16;
  const Matrix dy = random_values("dy", R, pieces * each, type);
  const auto piece_of = [&](const Matrix& whole, std::int64_t p) {
    Matrix piece(R, each);
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < each; ++c) piece(r, c) = whole(r, p * each + c);
    return piece;
  };
  const Operand stats(pieces * R, 2, DType::f32);
  for (std::int64_t p = 0; p < pieces; ++p) {
    const Operand inp(piece_of(x, p), type, 3);
    backend->run(ops::SoftmaxStats{stats.view().row_range(p * R, R), inp, {}, {0, each}});
  }
  const Matrix want = reference::softmax(x), d_want = reference::softmax_backward(dy, x);
  // Sums of that many terms, all at most 1, and a handful of roundings.
  const double error = (static_cast<double>(pieces * each) + 32) * 2 * rounding(DType::f32);
  const Tolerance tolerance = stored(type, error);
  std::vector<Operand> outs;
  Matrix dots(R, 1);
  for (std::int64_t p = 0; p < pieces; ++p) {
    const Operand inp(piece_of(x, p), type, 3), sums(R, 1, DType::f32);
    outs.emplace_back(R, each, type, 1);
    backend->run(ops::Softmax{outs[p], inp, stats});
    EXPECT_TRUE(close(outs[p], piece_of(want, p), tolerance)) << "piece " << p;
    backend->run(ops::Softmax{inp, inp, stats});
    EXPECT_TRUE(close(inp, outs[p].values(), {})) << "in place";
    backend->run(ops::RowDots{sums, Operand(piece_of(dy, p), type), outs[p]});
    for (std::int64_t r = 0; r < R; ++r) dots(r, 0) += sums.values()(r, 0);
  }
  // Results rounded to T have errors of half a digit each, and so has the sum, whose weights
  // add up to 1.
  const Operand summed(dots, DType::f32);
  const Tolerance d_tolerance = stored(type, error + 2 * rounding(type));
  for (std::int64_t p = 0; p < pieces; ++p) {
    const Operand d_out(piece_of(dy, p), type, 2), d_inp(R, each, type);
    backend->run(ops::SoftmaxBackward{d_inp, d_out, outs[p], summed});
    EXPECT_TRUE(close(d_inp, piece_of(d_want, p), d_tolerance)) << "piece " << p;
    backend->run(ops::SoftmaxBackward{d_out, d_out, outs[p], summed});
    EXPECT_TRUE(close(d_out, d_inp.values(), {})) << "in place";
  }
}

}  // namespace

TEST(Arithmetic, ActivationsAndTheirGradientsEqualTheFormulasAlsoInPlace) {
  const auto backend = test_backend();
  for (const auto& [kind, value, slope] : kFunctions)
    for (DType type : kModelTypes)
      for (const auto& [R, C, gap] : kMatrixSizes) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ' ' << name_of(type));
        Matrix x = random_values("x", R, C, type);
        const Matrix dy = random_values("dy", R, C, type);
        for (double& element : x.values) element *= 32;  // exact; reaches values where tanh is 1
        const Operand inp(x, type, gap), d_out(dy, type, gap), out(R, C, type, 2 * gap),
            d_inp(R, C, type, gap);
        backend->run(ops::Activation{out, inp, kind});
        backend->run(ops::ActivationBackward{d_inp, d_out, inp, kind});
        // The sigmoid is within 3e-7, and a handful of roundings follow, on results below 32.
        const Tolerance tolerance = stored(type, 32 * 1e-6);
        EXPECT_TRUE(
            close(out, joined(x, x, [&](double a, double) { return value(a); }), tolerance));
        EXPECT_TRUE(close(d_inp, joined(x, dy, [&](double a, double d) { return d * slope(a); }),
                          tolerance));
        backend->run(ops::ActivationBackward{d_out, d_out, inp, kind});
        EXPECT_TRUE(close(d_out, d_inp.values(), {})) << "in place";
        backend->run(ops::Activation{inp, inp, kind});
        EXPECT_TRUE(close(inp, out.values(), {})) << "in place";
      }
}

TEST(Arithmetic, TanhHasAllDigitsNearZeroAndIsOneAtInfinity) {
  const auto backend = test_backend();
  std::vector<double> values;
  for (float x = 1e-30f; x < 20; x *= 1.07f) values.insert(values.end(), {x, -x});
  Matrix x(1, static_cast<std::int64_t>(values.size()));
  x.values = values;
  const Operand inp(x, DType::f32), out(1, x.cols, DType::f32);
  backend->run(ops::Activation{out, inp, ops::ActivationKind::tanh});
  EXPECT_TRUE(
      close(out, joined(x, x, [](double a, double) { return std::tanh(a); }), {1e-40, 5e-7}));

  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Matrix ends(1, 5);
  ends.values = {kInfinity, -kInfinity, 1e38, -1e38, kNaN};
  const Operand far(ends, DType::f32), limits(1, 5, DType::f32);
  backend->run(ops::Activation{limits, far, ops::ActivationKind::tanh});
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(limits.values()(0, i), i % 2 == 0 ? 1 : -1);
  EXPECT_TRUE(std::isnan(limits.values()(0, 4)));
}

TEST(Arithmetic, AnActivationOfNaNIsNaN) {
  const auto backend = test_backend();
  const Operand inp(Matrix(1, 40, kNaN), DType::f32), out(1, 40, DType::f32);
  for (const Function& function : kFunctions) {
    backend->run(ops::Activation{out, inp, function.kind});
    EXPECT_TRUE(std::isnan(out.values()(0, 0)) && std::isnan(out.values()(0, 39)))
        << static_cast<int>(function.kind);
  }
}

TEST(Arithmetic, ScaleByNumberRoundsOnceAndMayBeInPlace) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (DType number : kModelTypes) {
      if (!may_mix(type, number)) continue;
      const Matrix x = random_values("x", 9, 70, type);
      const Operand inp(x, type, 3), by(Matrix(1, 1, 1.5), number);
      backend->run(ops::ScaleByNumber{inp, inp, by});
      EXPECT_TRUE(
          close(inp, joined(x, x, [](double u, double) { return u * 1.5; }), stored(type, 1e-30)));
    }
}

TEST(Arithmetic, SoftCapAndItsGradientEqualPlainLoopsAndMayBeInPlace) {
  const auto backend = test_backend();
  constexpr double kCap = 0.75;
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : kMatrixSizes) {
      const Matrix x = random_values("x", R, C, type), d = random_values("d", R, C, type);
      const Operand inp(x, type, gap), d_out(d, type);
      backend->run(ops::SoftCap{inp, inp, kCap});
      const Matrix capped =
          joined(x, x, [](double u, double) { return kCap * std::tanh(u / kCap); });
      EXPECT_TRUE(close(inp, capped, stored(type, 1e-6)));
      backend->run(ops::SoftCapBackward{d_out, d_out, inp, kCap});
      const Matrix want = joined(
          d, inp.values(), [](double of, double y) { return of * (1 - y * y / kCap / kCap); });
      EXPECT_TRUE(close(d_out, want, stored(type, 2e-6)));
    }
}

TEST(Arithmetic, AddNumberAddsInF32) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : kMatrixSizes) {
      const Matrix x = random_values("x", R, C, type);
      const Operand inp(x, type, gap), out(R, C, DType::f32);
      backend->run(ops::AddNumber{out, inp, 1});
      EXPECT_TRUE(close(out, joined(x, x, [](double u, double) { return u + 1; }),
                        stored(DType::f32, 1e-30)));
    }
}

TEST(Arithmetic, MultiplyAndScaleRoundOnceAndMayBeInPlace) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : kMatrixSizes) {
      const Matrix x = random_values("x", R, C, type), y = random_values("y", R, C, type);
      const Operand a(x, type, gap), b(y, type), out(R, C, type, gap), scaled(R, C, type);
      backend->run(ops::Multiply{out, a, b});
      backend->run(ops::Scale{scaled, a, -0.75f});
      const Tolerance tolerance = stored(type, 1e-30);
      const Matrix product = joined(x, y, [](double u, double v) { return u * v; });
      EXPECT_TRUE(close(out, product, tolerance));
      EXPECT_TRUE(
          close(scaled, joined(x, x, [](double u, double) { return -0.75 * u; }), tolerance));
      backend->run(ops::Scale{b, b, -0.75f});
      EXPECT_TRUE(close(b, joined(y, y, [](double u, double) { return -0.75 * u; }), tolerance));
      backend->run(ops::Multiply{a, a, a});
      EXPECT_TRUE(close(a, joined(x, x, [](double u, double v) { return u * v; }), tolerance));
    }
}

TEST(Softmax, AndItsGradientEqualPlainLoopsWholeAndInPieces) {
  for (DType type : kModelTypes) {
    check_softmax(1, 1, 1, type);
    check_softmax(3, 1, 17, type);
    check_softmax(5, 3, 84, type);
    check_softmax(0, 2, 8, type);
    check_softmax(2, 2, 2502, type);
  }
}

TEST(Softmax, TakesPiecesOfMinusInfinities) {
  const auto backend = test_backend();
  const Matrix none(2, 20, -std::numeric_limits<double>::infinity());
  const Operand masked(none, DType::f32), rest(Matrix(2, 20, 3), DType::f32),
      stats(4, 2, DType::f32), out(2, 20, DType::f32);
  backend->run(ops::SoftmaxStats{stats.view().row_range(0, 2), masked, {}, {0, 20}});
  backend->run(ops::SoftmaxStats{stats.view().row_range(2, 2), rest, {}, {0, 20}});
  backend->run(ops::Softmax{out, masked, stats});
  EXPECT_TRUE(close(out, Matrix(2, 20, 0), {}));
  backend->run(ops::Softmax{out, rest, stats});
  EXPECT_TRUE(close(out, Matrix(2, 20, 0.05), {1e-7, 0}));
}

TEST(Softmax, RefusesStatsOfNoPiece) {
  const Operand x(4, 6, DType::f32), few(3, 2, DType::f32);
  expect_refusal("softmax: stats is (3,2) f32, want", ops::Softmax{x, x, few});
}
