#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Numbers of elements, around the tiles of a step, and how many of them decay.
constexpr std::int64_t kSizes[][2] = {{1, 0}, {1, 1}, {17, 5}, {768, 768}, {20001, 9000}};

}  // namespace

TEST(AdamW, FollowsThePlainLoopOverThreeStepsAndWritesTheComputeCopy) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [n, decayed] : kSizes) {
      Matrix w = random_values("w", 1, n, DType::f32), m(1, n), v(1, n);
      const Operand master(w, DType::f32), first(1, n, DType::f32), second(1, n, DType::f32),
          out(1, n, type), scale(Matrix(1, 1, 0.5), DType::f32);
      for (int step = 1; step <= 3; ++step) {
        const Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
        const Operand gradient(g, DType::f32);
        backend->run(ops::AdamW{.master = master,
                                .first = first,
                                .second = second,
                                .gradient = gradient,
                                .out = out,
                                .scale = scale,
                                .lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .step = step,
                                .decayed = decayed});
        for (std::int64_t i = 0; i < n; ++i)
          reference::adamw(w(0, i), m(0, i), v(0, i), 0.5 * g(0, i),
                           {0.01f, 0.9f, 0.95f, 1e-8f, i < decayed ? 0.1f : 0.0f, step});
      }
      // Weights near 1 are rounded once per step, and a step of at most 0.03 has ten roundings;
      // 1 - beta2 in f32 has a relative error of 2^-25 / 0.05, which moments from 0 keep.
      const double error = 3 * (rounding(DType::f32) + 0.03 * 30 * rounding(DType::f32));
      EXPECT_TRUE(close(master, w, {error, 0}));
      EXPECT_TRUE(close(first, m, {8 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(second, v, {8 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
    }
}

TEST(AdEMAMix, FollowsThePlainLoopOverThreeSteps) {
  const auto backend = test_backend();
  constexpr double kBeta3 = 0.9999;
  for (DType type : kModelTypes)
    for (const auto& [n, decayed] : kSizes) {
      Matrix w = random_values("w", 1, n, DType::f32), m(1, n), s(1, n), v(1, n);
      const Operand master(w, DType::f32), first(1, n, DType::f32), slow(1, n, DType::f32),
          second(1, n, DType::f32), out(1, n, type), scale(Matrix(1, 1, 0.5), DType::f32);
      for (int step = 1; step <= 3; ++step) {
        const Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
        const Operand gradient(g, DType::f32);
        backend->run(ops::AdamW{.master = master,
                                .first = first,
                                .second = second,
                                .gradient = gradient,
                                .out = out,
                                .scale = scale,
                                .lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .step = step,
                                .decayed = decayed,
                                .slow = slow,
                                .beta3 = kBeta3,
                                .alpha = 500});
        for (std::int64_t i = 0; i < n; ++i)
          reference::ademamix(
              w(0, i), m(0, i), s(0, i), v(0, i), 0.5 * g(0, i),
              {{0.01f, 0.9f, 0.95f, 1e-8f, i < decayed ? 0.1f : 0.0f, step}, kBeta3, 500});
      }
      // As of AdamW; the slow mean, at most 3e-4 times 500, adds at most a sixth to a step. It is
      // the sum of three gradients over 10,000, each rounded thrice.
      const double error = 3 * (rounding(DType::f32) + 0.04 * 30 * rounding(DType::f32));
      EXPECT_TRUE(close(master, w, {error, 0}));
      EXPECT_TRUE(close(slow, s, {9 * 1.5e-4 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(second, v, {8 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
    }
}

TEST(Momentum, FollowsThePlainLoopWithAndWithoutNesterov) {
  const auto backend = test_backend();
  for (const bool nesterov : {true, false})
    for (const auto& [n, unused] : kSizes) {
      Matrix m(1, n), want(1, n);
      const Operand momentum(1, n, DType::f32), out(1, n, DType::f32),
          scale(Matrix(1, 1, 0.5), DType::f32);
      for (int step = 1; step <= 3; ++step) {
        const Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
        const Operand gradient(g, DType::f32);
        backend->run(ops::Momentum{.momentum = momentum,
                                   .gradient = gradient,
                                   .out = out,
                                   .scale = scale,
                                   .beta = 0.9f,
                                   .nesterov = nesterov});
        for (std::int64_t i = 0; i < n; ++i) {
          m(0, i) = 0.9f * m(0, i) + 0.5 * g(0, i);
          want(0, i) = nesterov ? 0.5 * g(0, i) + 0.9f * m(0, i) : m(0, i);
        }
      }
      // Sums below 2 with two roundings in each of three steps, and two of out.
      EXPECT_TRUE(close(momentum, m, {6 * 2 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, want, {8 * 2 * rounding(DType::f32), 0}));
    }
}

/// A matrix that Adafactor updates, or with one row a vector, and its moments as plain loops have
/// them.
struct Factored {
  Matrix g, rows, cols;  // (R, C), (1, R), (1, C)
  double mean = 0;       // of rows
  bool is_vector() const { return g.rows == 1; }

  explicit Factored(const Matrix& gradient)
      : g(gradient), rows(1, gradient.rows), cols(1, gradient.cols) {
    for (std::int64_t i = 0; i < g.rows; ++i)
      for (std::int64_t j = 0; j < g.cols; ++j) {
        const double square = 0.25 * g(i, j) * g(i, j);  // of half the gradient
        rows(0, i) += square / static_cast<double>(g.cols);
        cols(0, j) += square / static_cast<double>(g.rows);
        mean += square / static_cast<double>(g.rows * g.cols);
      }
  }
  /// Half the gradient over the root of the second moment with these bounds.
  double step(std::int64_t i, std::int64_t j, double added, double lowest) const {
    double v = cols(0, j) + added;
    if (!is_vector()) v *= (rows(0, i) + added) / std::max(mean + added, lowest);
    return 0.5 * g(i, j) / std::max(std::sqrt(v), lowest);
  }
  /// The sum of all squares of step(), whose largest size becomes `most`.
  double squares(double added, double lowest, double& most) const {
    double all = 0;
    for (std::int64_t i = 0; i < g.rows; ++i)
      for (std::int64_t j = 0; j < g.cols; ++j) {
        const double u = step(i, j, added, lowest);
        all += u * u;
        most = std::max(most, std::abs(u));
      }
    return all;
  }
};

/// Matrices and vectors around the tiles of a step.
constexpr std::int64_t kMatrices[][2] = {{1, 17}, {1, 20001}, {3, 17}, {200, 60}, {5, 9001}};

TEST(Adafactor, MeanSquaresAreAddedUpOverPartsOfAMatrix) {
  const auto backend = test_backend();
  for (const auto& [R, C] : kMatrices) {
    const Factored want(random_values("g", R, C, DType::f32));
    const Operand gradient(want.g, DType::f32), rows(1, R, DType::f32), cols(1, C, DType::f32),
        scale(Matrix(1, 1, 0.5), DType::f32);
    const std::int64_t half = C / 2;
    for (const auto& [begin, count] : {std::pair{std::int64_t{0}, half}, {half, C - half}})
      backend->run(ops::AddSquares{.rows = R > 1 ? rows.view() : View{},
                                   .cols = cols.view().col_range(begin, count),
                                   .gradient = gradient.view().col_range(begin, count),
                                   .scale = scale,
                                   .row_share = 1 / static_cast<float>(C),
                                   .col_share = 1 / static_cast<float>(R)});
    // Means of squares up to 4 · 0.25; of 200 rows each in its turn, of a row in many sums.
    EXPECT_TRUE(close(cols, want.cols, {(R + 5.0) * rounding(DType::f32), 0}));
    const Matrix of_rows = R > 1 ? want.rows : Matrix(1, 1);
    EXPECT_TRUE(close(rows, of_rows, {60 * rounding(DType::f32), 0}));
  }
}

TEST(Adafactor, StepsOfAMatrixFollowThePlainLoopInBothForms) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const auto& [R, C] : kMatrices)
      for (const auto& [added, lowest, beta1] :
           {std::tuple{0.01F, 0.0F, 0.0F}, {1e-30F, 0.0F, 0.75F}, {0.0F, 0.4F, 0.75F}}) {
        const Factored f(random_values("g", R, C, DType::f32));
        const auto n = static_cast<double>(R * C);
        Matrix w = random_values("w", R, C, DType::f32), m = random_values("m", R, C, DType::f32);
        const Operand gradient(f.g, DType::f32), rows(f.rows, DType::f32), cols(f.cols, DType::f32),
            sum(Matrix(1, 1, f.mean * static_cast<double>(R)), DType::f64), master(w, DType::f32),
            momentum(m, DType::f32), out(R, C, type), squares(1, 1, DType::f64),
            weights(Matrix(1, 1, n * 0.25), DType::f64), scale(Matrix(1, 1, 0.5), DType::f32);
        ops::FactoredMoment moment{
            .cols = cols, .count = static_cast<float>(R), .added = added, .lowest = lowest};
        if (!f.is_vector()) {
          moment.rows = rows;
          moment.sum = sum;
        }
        backend->run(ops::AdafactorSquares{squares, gradient, moment, scale});
        ops::Adafactor op{.master = master,
                          .gradient = gradient,
                          .out = out,
                          .moment = moment,
                          .scale = scale,
                          .step_squares = squares,
                          .weight_squares = weights,
                          .count = n,
                          .step = 0.1F,
                          .least_size = 0.25F,
                          .threshold = 0.5F,
                          .beta1 = beta1,
                          .shrink = 0.01F,
                          .weight_decay = 0.125F};
        if (beta1 > 0) op.momentum = momentum;
        backend->run(op);
        double most = 0;
        const double all = f.squares(added, lowest, most);
        const double clip = std::max(1.0, std::sqrt(all / n) / 0.5);
        for (std::int64_t i = 0; i < R; ++i)
          for (std::int64_t j = 0; j < C; ++j) {
            double u = 0.1F * 0.5 * f.step(i, j, added, lowest) / clip;
            if (beta1 > 0) u = m(i, j) = beta1 * m(i, j) + (1 - beta1) * u;
            w(i, j) -= u + (0.01F + 0.1F * 0.5 * 0.125) * w(i, j);
          }
        // Twenty roundings of a step, and three of weights near 1.
        const double error = (20 * 0.05 * most / clip + 3) * rounding(DType::f32);
        EXPECT_NEAR(squares.values()(0, 0), all, all * 20 * rounding(DType::f32));
        EXPECT_TRUE(close(master, w, {error, 0}));
        EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
        EXPECT_TRUE(close(momentum, m, {error, 0}));
      }
}

TEST(Adafactor, StaysWhereAllGradientsOfARowAreZero) {
  const auto backend = test_backend();
  const std::int64_t R = 3, C = 17;
  Matrix g = random_values("g", R, C, DType::f32);
  for (std::int64_t j = 0; j < C; ++j) g(1, j) = 0;
  for (std::int64_t i = 0; i < R; ++i) g(i, 2) = 0;
  const Factored f(g);
  for (const auto& [added, lowest] : {std::pair{1e-30F, 0.0F}, {0.0F, 1e-7F}}) {
    const Matrix w = random_values("w", R, C, DType::f32);
    const Operand gradient(g, DType::f32), rows(f.rows, DType::f32), cols(f.cols, DType::f32),
        sum(Matrix(1, 1, f.mean * R), DType::f64), squares(Matrix(1, 1, 1), DType::f64),
        master(w, DType::f32), out(R, C, DType::f32);
    const ops::FactoredMoment moment{rows, cols, sum, static_cast<float>(R), added, lowest};
    backend->run(ops::Adafactor{.master = master,
                                .gradient = gradient,
                                .out = out,
                                .moment = moment,
                                .step_squares = squares,
                                .count = 51,
                                .step = 0.1F});
    const Matrix after = master.values();
    for (std::int64_t i = 0; i < R; ++i)
      for (std::int64_t j = 0; j < C; ++j)
        EXPECT_EQ(after(i, j) == w(i, j), i == 1 || j == 2) << i << ' ' << j;
  }
}

TEST(Muon, DivisionByTheNormAndWeightedSumsFollowPlainLoops) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const auto& [R, C, gap] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 0},
                                    {3, 17, 4},
                                    {60, 500, 0}}) {
      const Matrix a = random_values("a", R, C, type), b = random_values("b", R, C, type);
      const Operand out(R, C, type, gap), left(a, type, gap), right(b, type),
          squares(Matrix(1, 1, 6.25), DType::f64);
      Matrix want(R, C);
      for (std::size_t i = 0; i < want.values.size(); ++i)
        want.values[i] = 3 * a.values[i] - 0.5 * b.values[i];
      backend->run(ops::WeightedSum{.out = out, .a = left, .b = right, .alpha = 3, .beta = -0.5f});
      EXPECT_TRUE(close(out, want, stored(type, 4 * rounding(DType::f32))));
      EXPECT_TRUE(out.gap_untouched());

      const Matrix x = random_values("x", R, C, DType::f32);
      const Operand inp(x, DType::f32);
      for (std::size_t i = 0; i < want.values.size(); ++i) want.values[i] = x.values[i] / (2.5 + 1);
      backend->run(ops::DivideByNorm{out, inp, squares, 1});
      EXPECT_TRUE(close(out, want, stored(type, 2 * rounding(DType::f32))));
      EXPECT_TRUE(out.gap_untouched());
    }
}

TEST(MovingAverage, FollowsThePlainLoopWithDecayRatesNearOne) {
  const auto backend = test_backend();
  for (const double rate : {0.5, 1e-4})
    for (const auto& [n, unused] : kSizes) {
      Matrix want = random_values("e", 1, n, DType::f32);
      const Operand average(want, DType::f32);
      for (int step = 1; step <= 3; ++step) {
        const Matrix w = random_values(std::to_string(step), 1, n, DType::f32);
        const Operand values(w, DType::f32);
        backend->run(ops::MovingAverage{average, values, static_cast<float>(rate)});
        for (std::int64_t i = 0; i < n; ++i) want(0, i) += rate * (w(0, i) - want(0, i));
      }
      // A sum below 1 is rounded once per step; the summand, at most 2 · rate, thrice.
      const double error = 3 * (1 + 3 * 2 * rate) * rounding(DType::f32);
      EXPECT_TRUE(close(average, want, {error, 0}));
    }
}

TEST(Sgd, StepsAgainstTheScaledGradientAndDecaysTheFirstElements) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [n, decayed] : kSizes) {
      Matrix w = random_values("w", 1, n, DType::f32);
      const Matrix g = random_values("g", 1, n, DType::f32);
      const Operand master(w, DType::f32), gradient(g, DType::f32), out(1, n, type),
          scale(Matrix(1, 1, 0.5), DType::f32);
      backend->run(ops::Sgd{.master = master,
                            .gradient = gradient,
                            .out = out,
                            .scale = scale,
                            .lr = 0.1f,
                            .weight_decay = 0.2f,
                            .decayed = decayed});
      for (std::int64_t i = 0; i < n; ++i)
        w(0, i) -= 0.1f * (0.5 * g(0, i) + (i < decayed ? 0.2f : 0.0f) * w(0, i));
      EXPECT_TRUE(close(master, w, {4 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
    }
}

TEST(Sgd, WithMomentumFollowsThePlainLoopOverThreeSteps) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const bool nesterov : {true, false})
      for (const auto& [n, decayed] : kSizes) {
        Matrix w = random_values("w", 1, n, DType::f32), m(1, n);
        const Operand master(w, DType::f32), momentum(1, n, DType::f32), out(1, n, type),
            scale(Matrix(1, 1, 0.5), DType::f32);
        for (int step = 1; step <= 3; ++step) {
          const Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
          const Operand gradient(g, DType::f32);
          backend->run(ops::Sgd{.master = master,
                                .gradient = gradient,
                                .out = out,
                                .scale = scale,
                                .lr = 0.1f,
                                .weight_decay = 0.2f,
                                .decayed = decayed,
                                .momentum = momentum,
                                .beta = 0.9f,
                                .added = 0.75f,
                                .nesterov = nesterov});
          for (std::int64_t i = 0; i < n; ++i) {
            const double d = 0.5 * g(0, i) + (i < decayed ? 0.2f : 0.0f) * w(0, i);
            m(0, i) = 0.9f * m(0, i) + 0.75 * d;
            w(0, i) -= 0.1f * (nesterov ? d + 0.9f * m(0, i) : m(0, i));
          }
        }
        // Sums below 4, with at most six roundings in each of three steps.
        EXPECT_TRUE(close(momentum, m, {18 * 4 * rounding(DType::f32), 0}));
        EXPECT_TRUE(close(master, w, {18 * 4 * rounding(DType::f32), 0}));
        EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
      }
}

TEST(Lion, FollowsThePlainLoopOverThreeStepsAndStaysWhereAllIsZero) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [n, decayed] : kSizes) {
      Matrix w = random_values("w", 1, n, DType::f32), m(1, n);
      const Operand master(w, DType::f32), mean(1, n, DType::f32), out(1, n, type),
          scale(Matrix(1, 1, 0.5), DType::f32);
      for (int step = 1; step <= 3; ++step) {
        Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
        g(0, n - 1) = 0;
        const Operand gradient(g, DType::f32);
        backend->run(ops::Lion{.master = master,
                               .mean = mean,
                               .gradient = gradient,
                               .out = out,
                               .scale = scale,
                               .lr = 0.1f,
                               .beta1 = 0.75f,
                               .beta2 = 0.875f,
                               .weight_decay = 0.2f,
                               .decayed = decayed});
        for (std::int64_t i = 0; i < n; ++i) {
          const double of_step = 0.5 * g(0, i), direction = 0.75 * m(0, i) + 0.25 * of_step;
          const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
          m(0, i) = 0.875 * m(0, i) + 0.125 * of_step;
          w(0, i) -= 0.1f * (sign + (i < decayed ? 0.2f : 0.0f) * w(0, i));
        }
      }
      EXPECT_TRUE(close(mean, m, {9 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(master, w, {3 * 4 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
    }
}

TEST(ScheduleFreeAdamW, FollowsThePlainLoopOverThreeSteps) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [n, decayed] : kSizes) {
      Matrix y = random_values("w", 1, n, DType::f32), z = y, x = y, v(1, n);
      const Operand master(y, DType::f32), steps(1, n, DType::f32), average(1, n, DType::f32),
          second(1, n, DType::f32), out(1, n, type), scale(Matrix(1, 1, 0.5), DType::f32);
      for (int step = 1; step <= 3; ++step) {
        const Matrix g = random_values(std::to_string(step), 1, n, DType::f32);
        const Operand gradient(g, DType::f32);
        backend->run(ops::ScheduleFreeAdamW{.master = master,
                                            .z = steps,
                                            .average = average,
                                            .second = second,
                                            .gradient = gradient,
                                            .out = out,
                                            .scale = scale,
                                            .lr = 0.01f,
                                            .beta1 = 0.9f,
                                            .beta2 = 0.95f,
                                            .eps = 1e-8f,
                                            .weight_decay = 0.1f,
                                            .share = 1.0f / static_cast<float>(step),
                                            .step = step,
                                            .decayed = decayed});
        for (std::int64_t i = 0; i < n; ++i) {
          double none = 0;  // AdamW without a mean of gradients
          double moved = 0;
          reference::adamw(moved, none, v(0, i), 0.5 * g(0, i), {0.01f, 0, 0.95f, 1e-8f, 0, step});
          z(0, i) += moved - 0.01f * (i < decayed ? 0.1f : 0.0f) * y(0, i);
          x(0, i) += (z(0, i) - x(0, i)) / step;
          y(0, i) = z(0, i) + 0.9f * (x(0, i) - z(0, i));
        }
      }
      // As of AdamW, in which weights are rounded thrice as often.
      const double error = 9 * (rounding(DType::f32) + 0.03 * 30 * rounding(DType::f32));
      EXPECT_TRUE(close(master, y, {error, 0}));
      EXPECT_TRUE(close(steps, z, {error, 0}));
      EXPECT_TRUE(close(average, x, {error, 0}));
      EXPECT_TRUE(close(second, v, {8 * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(out, master.values(), rounded_to(type)));
    }
}

TEST(Clamp, LimitsSizes) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 0},
                                    {3, 17, 4},
                                    {60, 500, 0}}) {
      Matrix want = random_values("x", R, C, type);
      const Operand values(want, type, gap);
      backend->run(ops::Clamp{values, 0.5f});
      for (double& value : want.values) value = std::clamp(value, -0.5, 0.5);
      EXPECT_TRUE(close(values, want, {0, 0}));
      EXPECT_TRUE(values.gap_untouched());
    }
}

TEST(Optimizers, RefuseStepZeroAndMoreDecayedElementsThanThereAre) {
  const Operand x(1, 4, DType::f32), scale(1, 1, DType::f32);
  ops::AdamW args{.master = x, .first = x, .second = x, .gradient = x, .out = x, .scale = scale};
  args.step = 0;
  expect_refusal("adamw: step 0, want 1 or more", args);
  args.step = 1;
  args.decayed = 5;
  expect_refusal("adamw: 5 decayed elements of 4", args);
}

TEST(Reductions, SumSquaresAndNonfiniteElementsAreAddedToWhatIsThere) {
  const auto backend = test_backend();
  const double inf = std::numeric_limits<double>::infinity();
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 0},
                                    {3, 17, 4},
                                    {1, 30000, 0},
                                    {60, 500, 0},
                                    {0, 5, 0}}) {
      Matrix x = random_values("x", R, C, type);
      const Operand inp(x, type, gap), sum(Matrix(1, 1, 3), DType::f64),
          squares(Matrix(1, 1, 4), DType::f64);
      if (type == DType::f32) backend->run(ops::Sum{sum, inp});
      backend->run(ops::SquaredSum{squares, inp});
      double want_sum = 3, want_squares = 4;
      for (double value : x.values) {
        want_sum += value;
        want_squares += value * value;
      }
      // Sums are in double: there are 30,000 roundings of double on sums below 30,000.
      EXPECT_NEAR(type == DType::f32 ? sum.values()(0, 0) : want_sum, want_sum, 1e-7);
      EXPECT_NEAR(squares.values()(0, 0), want_squares, 1e-7);

      double want_bad = 5;
      for (std::size_t i = 0; i < x.values.size(); i += 11, ++want_bad)
        x.values[i] = i % 3 == 0 ? inf : i % 3 == 1 ? -inf : std::nan("");
      const Operand bad(x, type, gap), count(Matrix(1, 1, 5), DType::i64);
      backend->run(ops::CountNonfinite{count, bad});
      EXPECT_EQ(count.values()(0, 0), want_bad);
    }
}

TEST(Reductions, PowersAndTheLargestSizeAreCombinedWithWhatIsThere) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, C, gap] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 0},
                                    {3, 17, 4},
                                    {1, 30000, 0},
                                    {60, 500, 0},
                                    {0, 5, 0}}) {
      Matrix x = random_values("x", R, C, type);
      for (double& value : x.values) value -= 0.5;  // the largest size is negative
      x = Operand(x, type).values();
      const Operand inp(x, type, gap), squares(Matrix(1, 1, 16), DType::f64),
          none(Matrix(1, 1, 0), DType::f64);
      double largest = 0.25;
      for (const double value : x.values) largest = std::max(largest, std::abs(value));
      const Operand most(Matrix(1, 1, 0.25), DType::f64);
      backend->run(ops::LargestSize{most, inp});
      EXPECT_EQ(most.values()(0, 0), largest);
      for (const double p : {1.0, 1.5, 3.0}) {
        const Operand out(Matrix(1, 1, 2), DType::f64);
        backend->run(ops::PowerSum{out, inp, squares, p});
        backend->run(ops::PowerSum{out, inp, none, p});
        double want = 2;
        for (const double value : x.values) want += std::pow(std::abs(value) / 4, p);
        EXPECT_NEAR(out.values()(0, 0), want, 1e-9 * want);
      }
    }
}

TEST(Reductions, ClipFactorTakesANormOfAnotherPower) {
  const auto backend = test_backend();
  const Operand out(1, 1, DType::f32), squared(Matrix(1, 1, 16), DType::f64),
      sum(Matrix(1, 1, 8), DType::f64);
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [p, norm] : {std::pair{1.0, 32.0}, {3.0, 8.0}, {inf, 8.0}}) {
    backend->run(ops::ClipFactor{out, squared, 2, sum, p});
    EXPECT_FLOAT_EQ(static_cast<float>(out.values()(0, 0)), static_cast<float>(2 / norm)) << p;
  }
}

TEST(Reductions, ClipFactorScalesOnlyNormsAboveTheLimit) {
  const auto backend = test_backend();
  const Operand out(1, 1, DType::f32), squared(Matrix(1, 1, 16), DType::f64);
  const std::pair<float, double> cases[] = {{1, 0.25}, {4, 1}, {5, 1}, {0, 1}};
  for (const auto& [max_norm, want] : cases) {
    backend->run(ops::ClipFactor{out, squared, max_norm});
    EXPECT_EQ(out.values()(0, 0), want) << max_norm;
  }
}
