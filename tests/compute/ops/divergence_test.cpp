#include <cmath>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// The softmax of `valid` columns of a row.
std::vector<double> softmax(const Matrix& x, std::int64_t row) {
  std::vector<double> p(x.cols);
  double total = 0;
  for (std::int64_t c = 0; c < x.cols; ++c) total += p[c] = std::exp(x(row, c));
  for (double& one : p) one /= total;
  return p;
}

double log_sum(const Matrix& x, std::int64_t row) {
  double total = 0;
  for (std::int64_t c = 0; c < x.cols; ++c) total += std::exp(x(row, c));
  return std::log(total);
}

/// The divergence of a row by its definition.
double divergence(const std::vector<double>& s, const std::vector<double>& t, double beta) {
  double sum = 0;
  for (std::size_t c = 0; c < s.size(); ++c) {
    const double m = (1 - beta) * s[c] + beta * t[c];
    if (beta == 0)
      sum += t[c] * std::log(t[c] / s[c]);
    else if (beta == 1)
      sum += s[c] * std::log(s[c] / t[c]);
    else
      sum += beta * t[c] * std::log(t[c] / m) + (1 - beta) * s[c] * std::log(s[c] / m);
  }
  return sum;
}

/// Its derivative by a logit of the student, by differences.
double derivative(Matrix student, const std::vector<double>& t, std::int64_t row, std::int64_t c,
                  double beta) {
  constexpr double kStep = 1e-4;
  const double at = student(row, c);
  student(row, c) = at + kStep;
  const double above = divergence(softmax(student, row), t, beta);
  student(row, c) = at - kStep;
  return (above - divergence(softmax(student, row), t, beta)) / (2 * kStep);
}

/// Columns [from, from + count) of x, and padding that holds large numbers.
Matrix piece_of(const Matrix& x, std::int64_t from, std::int64_t count, std::int64_t cols) {
  Matrix piece(x.rows, cols, 1000);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) piece(r, c) = x(r, from + c);
  return piece;
}

/// Checks V columns in two pieces, of which the second has padding. Row 1 does not count.
void check(std::int64_t V, float beta, DType type, double spread) {
  SCOPED_TRACE(testing::Message() << V << " columns, beta " << beta << ' ' << name_of(type));
  constexpr std::int64_t kR = 3;
  const auto backend = test_backend();
  Matrix student = random_values("student", kR, V, DType::f32),
         teacher = random_values("teacher", kR, V, DType::f32);
  for (Matrix* x : {&student, &teacher})
    for (double& value : x->values) value = static_cast<float>(value * spread);
  const Operand targets(std::vector<std::int32_t>{0, -1, 3});
  Matrix s_lse(kR, 1), t_lse(kR, 1);
  for (std::int64_t r = 0; r < kR; ++r) {
    s_lse(r, 0) = log_sum(student, r);
    t_lse(r, 0) = log_sum(teacher, r);
  }
  const Operand of_s(s_lse, DType::f32), of_t(t_lse, DType::f32);
  const std::int64_t first = (V + 1) / 2, cols = first + 2;
  Matrix sums(kR, 2);
  std::vector<Operand> s_pieces, t_pieces;
  for (const auto& [from, count] :
       {std::pair<std::int64_t, std::int64_t>{0, first}, {first, V - first}}) {
    s_pieces.emplace_back(piece_of(student, from, count, cols), DType::f32, 3);
    t_pieces.emplace_back(piece_of(teacher, from, count, cols), DType::f32, 1);
    const Operand out(kR, 2, DType::f32);
    backend->run(ops::DivergenceTerms{.out = out,
                                      .student = s_pieces.back(),
                                      .teacher = t_pieces.back(),
                                      .student_lse = of_s,
                                      .teacher_lse = of_t,
                                      .targets = targets,
                                      .valid = count,
                                      .beta = beta});
    for (std::size_t i = 0; i < sums.values.size(); ++i) sums.values[i] += out.values().values[i];
  }
  const Operand terms(sums, DType::f32);
  for (std::int64_t r = 0; r < kR; ++r) {
    const std::vector<double> t = softmax(teacher, r);
    const double want = r == 1 ? 0 : divergence(softmax(student, r), t, beta);
    EXPECT_NEAR(sums(r, 0), want, 4e-6 * (1 + want)) << r;
  }
  for (std::size_t p = 0; p < 2; ++p) {
    const std::int64_t from = p == 0 ? 0 : first, count = p == 0 ? first : V - first;
    const Operand d(kR, cols, type, 2);
    backend->run(ops::DivergenceBackward{.d_logits = d,
                                         .student = s_pieces[p],
                                         .teacher = t_pieces[p],
                                         .student_lse = of_s,
                                         .teacher_lse = of_t,
                                         .targets = targets,
                                         .terms = terms,
                                         .valid = count,
                                         .beta = beta,
                                         .scale = 0.25f});
    Matrix want(kR, cols);
    for (const std::int64_t r : {std::int64_t{0}, std::int64_t{2}})
      for (std::int64_t c = 0; c < count; ++c)
        want(r, c) = 0.25 * derivative(student, softmax(teacher, r), r, from + c, beta);
    EXPECT_TRUE(close(d, want, stored(type, 4e-6)));
  }
}

}  // namespace

TEST(Divergence, AndItsGradientEqualPlainLoopsInPieces) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const float beta : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f}) {
      check(5, beta, type, 1);
      check(151, beta, type, 3);
      check(1003, beta, type, 8);
    }
}

TEST(Divergence, HasThePublishedValues) {
  const auto backend = test_backend();
  const Operand student(Matrix(1, 3), DType::f32), targets(std::vector<std::int32_t>{0});
  Matrix logits(1, 3), lse(1, 1);
  logits(0, 0) = 2, logits(0, 1) = 1;
  lse(0, 0) = log_sum(logits, 0);
  const Operand teacher(logits, DType::f32), of_t(lse, DType::f32);
  lse(0, 0) = std::log(3);
  const Operand of_s(lse, DType::f32);
  for (const auto& [beta, want] : {std::pair{0.0f, 0.26621670682817083},
                                   {1.0f, 0.3089936757762705},
                                   {0.5f, 0.06871159973175187}}) {
    const Operand out(1, 2, DType::f32);
    backend->run(ops::DivergenceTerms{.out = out,
                                      .student = student,
                                      .teacher = teacher,
                                      .student_lse = of_s,
                                      .teacher_lse = of_t,
                                      .targets = targets,
                                      .valid = 3,
                                      .beta = beta});
    EXPECT_NEAR(out.values()(0, 0), want, 2e-7) << beta;
  }
}

TEST(Entropy, OfPiecesAddsUpToThatOfPlainLoops) {
  constexpr std::int64_t kR = 4, kV = 301, kFirst = 151, kCols = 160;
  const auto backend = test_backend();
  for (const double spread : {0.5, 20.0}) {
    Matrix logits = random_values("logits", kR, kV, DType::f32), lse(kR, 1);
    for (double& value : logits.values) value = static_cast<float>(value * spread);
    for (std::int64_t r = 0; r < kR; ++r) lse(r, 0) = log_sum(logits, r);
    const Operand of_rows(lse, DType::f32),
        targets(std::vector<std::int32_t>{0, -1, 300, 7});  // row 1 does not count
    std::vector<double> sums(kR);
    for (const auto& [from, count] :
         {std::pair<std::int64_t, std::int64_t>{0, kFirst}, {kFirst, kV - kFirst}}) {
      const Operand piece(piece_of(logits, from, count, kCols), DType::f32, 3),
          out(kR, 1, DType::f32, 2);
      backend->run(ops::EntropyTerms{out, piece, of_rows, targets, count});
      EXPECT_TRUE(out.gap_untouched());
      for (std::int64_t r = 0; r < kR; ++r) sums[r] += out.values()(r, 0);
    }
    for (std::int64_t r = 0; r < kR; ++r) {
      double want = 0;
      for (const double p : softmax(logits, r)) want -= r == 1 ? 0 : p * std::log(p);
      EXPECT_NEAR(sums[r], want, 4e-6 * (1 + want)) << r;
    }
  }
}
