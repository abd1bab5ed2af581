#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

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

/// Of each row (R, 1).
Matrix log_sums(const Matrix& x) {
  Matrix sums(x.rows, 1);
  for (std::int64_t r = 0; r < x.rows; ++r) sums(r, 0) = log_sum(x, r);
  return sums;
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

/// p of the tokens whose logit in a row of `teacher` is at least `least`, then that of all others
/// together; p itself if `least` is minus infinity.
std::vector<double> bucketed(const std::vector<double>& p, const Matrix& teacher, std::int64_t row,
                             double least) {
  std::vector<double> all;
  double tail = 0;
  for (std::size_t c = 0; c < p.size(); ++c)
    if (teacher(row, static_cast<std::int64_t>(c)) >= least)
      all.push_back(p[c]);
    else
      tail += p[c];
  if (tail > 0) all.push_back(tail);
  return all;
}

/// The k-th largest value of a row; minus infinity if k is 0.
double least_of(const Matrix& x, std::int64_t row, std::int64_t k) {
  if (k == 0) return -std::numeric_limits<double>::infinity();
  std::vector<double> values;
  for (std::int64_t c = 0; c < x.cols; ++c) values.push_back(x(row, c));
  std::ranges::sort(values, std::greater());
  return values[std::min<std::size_t>(k, values.size()) - 1];
}

Matrix least_of_rows(const Matrix& x, std::int64_t k) {
  Matrix least(x.rows, 1);
  for (std::int64_t r = 0; r < x.rows; ++r) least(r, 0) = least_of(x, r, k);
  return least;
}

/// Which divergence, and of how many tokens; 0: of all.
struct Kind {
  float beta;
  std::int64_t k = 0;
};

double divergence_of_row(const Matrix& student, const Matrix& teacher, std::int64_t row,
                         const Kind& kind) {
  const double least = least_of(teacher, row, kind.k);
  return divergence(bucketed(softmax(student, row), teacher, row, least),
                    bucketed(softmax(teacher, row), teacher, row, least), kind.beta);
}

/// Its derivative by a logit of the student, by differences.
double derivative(Matrix student, const Matrix& teacher, std::int64_t row, std::int64_t c,
                  const Kind& kind) {
  constexpr double kStep = 1e-4;
  const double at = student(row, c);
  student(row, c) = at + kStep;
  const double above = divergence_of_row(student, teacher, row, kind);
  student(row, c) = at - kStep;
  return (above - divergence_of_row(student, teacher, row, kind)) / (2 * kStep);
}

/// Columns [from, from + count) of x, and padding that holds large numbers.
Matrix piece_of(const Matrix& x, std::int64_t from, std::int64_t count, std::int64_t cols) {
  Matrix piece(x.rows, cols, 1000);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) piece(r, c) = x(r, from + c);
  return piece;
}

/// Checks V columns in two pieces, of which the second has padding. Row 1 does not count.
void check(std::int64_t V, const Kind& kind, DType type, double spread) {
  const auto [beta, k] = kind;
  SCOPED_TRACE(testing::Message() << V << " columns, beta " << beta << ' ' << name_of(type)
                                  << ", the " << k << " likeliest");
  constexpr std::int64_t kR = 3;
  const auto backend = test_backend();
  Matrix student = random_values("student", kR, V, DType::f32),
         teacher = random_values("teacher", kR, V, DType::f32);
  for (Matrix* x : {&student, &teacher})
    for (double& value : x->values) value = static_cast<float>(value * spread);
  const Operand targets(std::vector<std::int32_t>{0, -1, 3});
  const Operand of_s(log_sums(student), DType::f32), of_t(log_sums(teacher), DType::f32);
  const std::int64_t first = (V + 1) / 2, cols = first + 2, columns = k > 0 ? 4 : 2;
  Matrix sums(kR, columns);
  const Operand from(least_of_rows(teacher, std::max<std::int64_t>(k, 1)), DType::f32);
  const View kept = k > 0 ? from.view() : View{};
  std::vector<Operand> s_pieces, t_pieces;
  for (const auto& [begin, count] :
       {std::pair<std::int64_t, std::int64_t>{0, first}, {first, V - first}}) {
    s_pieces.emplace_back(piece_of(student, begin, count, cols), DType::f32, 3);
    t_pieces.emplace_back(piece_of(teacher, begin, count, cols), DType::f32, 1);
    const Operand out(kR, columns, DType::f32);
    backend->run(ops::DivergenceTerms{.out = out,
                                      .student = s_pieces.back(),
                                      .teacher = t_pieces.back(),
                                      .student_lse = of_s,
                                      .teacher_lse = of_t,
                                      .targets = targets,
                                      .valid = count,
                                      .beta = beta,
                                      .kept = kept});
    for (std::size_t i = 0; i < sums.values.size(); ++i) sums.values[i] += out.values().values[i];
  }
  const Operand terms(sums, DType::f32);
  if (k > 0) backend->run(ops::DivergenceTail{terms, targets, beta});
  for (std::int64_t r = 0; r < kR; ++r) {
    const double want = r == 1 ? 0 : divergence_of_row(student, teacher, r, kind);
    EXPECT_NEAR(terms.values()(r, 0), want, 4e-6 * (1 + want)) << r;
  }
  for (std::size_t p = 0; p < 2; ++p) {
    const std::int64_t begin = p == 0 ? 0 : first, count = p == 0 ? first : V - first;
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
                                         .scale = 0.25f,
                                         .kept = kept});
    Matrix want(kR, cols);
    for (const std::int64_t r : {std::int64_t{0}, std::int64_t{2}})
      for (std::int64_t c = 0; c < count; ++c)
        want(r, c) = 0.25 * derivative(student, teacher, r, begin + c, kind);
    EXPECT_TRUE(close(d, want, stored(type, 4e-6)));
  }
}

}  // namespace

TEST(Divergence, AndItsGradientEqualPlainLoopsInPieces) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const float beta : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f}) {
      check(5, {beta}, type, 1);
      check(151, {beta}, type, 3);
      check(1003, {beta}, type, 8);
    }
}

TEST(Divergence, OfTheTeachersLikeliestTokensHasATail) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const float beta : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f})
      for (const std::int64_t k : {1, 3, 40}) {
        check(151, {beta, k}, type, 3);
        check(1003, {beta, k}, type, 2);
      }
  for (const float beta : {0.0f, 0.5f, 1.0f}) check(5, {beta, 2}, DType::f32, 1);
}

/// functions of TRL 1.16.0's server_distillation with k 2 and the tail, in f64.
TEST(Divergence, OfTwoTokensAndATailIsThatOfTrl) {
  const auto backend = test_backend();
  const auto rows = [](const std::vector<std::vector<double>>& values) {
    Matrix all(4, 6);
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < 6; ++c) all(r, c) = values[r][c];
    return all;
  };
  const Matrix student = rows({{-1.836, 0.566, 1.492, -0.77, -1.993, -0.098},
                               {0.717, 1.647, -1.824, -1.939, 1.059, 0.711},
                               {2.301, 1.474, -0.153, -0.411, 3.856, -0.433},
                               {-1.177, -1.708, 0.143, 0.218, -0.517, -0.093}}),
               teacher = rows({{0.41, 1.039, 1.645, 0.315, -2.685, 1.053},
                               {-2.13, -0.257, -2.211, 0.003, -1.168, 0.321},
                               {4.95, -0.073, 1.263, -1.985, -0.432, 0.994},
                               {-0.139, 0.555, 0.155, -1.509, 0.846, -1.218}}),
               gradient =
                   rows({{-0.0015435016826566928, -0.017048353925604963, 0.047455137797860106,
                          -0.004481929542336543, -0.0013192371529586017, -0.023062115494303297},
                         {0.02338936641862626, 0.059280563846675106, 0.001842791409709342,
                          -0.06499006150197804, 0.032926621428151656, -0.0524492816011843},
                         {-0.19754043225173581, 0.016500970599810892, -0.0025650007976085664,
                          0.0025053268458419746, 0.17864832408113496, 0.0024508115225565594},
                         {0.009321393595153748, -0.05540240972210379, 0.03489390404996103,
                          0.03761158613794205, -0.05398300511767782, 0.02755853105672478}});
  const Operand s(student, DType::f32), t(teacher, DType::f32), of_s(log_sums(student), DType::f32),
      of_t(log_sums(teacher), DType::f32), targets(std::vector<std::int32_t>{0, 0, 0, 0}),
      kept(4, 1, DType::f32), terms(4, 4, DType::f32), d(4, 6, DType::f32);
  backend->run(
      ops::KthLargestLogit{.out = kept, .logits = t, .targets = targets, .vocab = 6, .k = 2});
  backend->run(ops::DivergenceTerms{terms, s, t, of_s, of_t, targets, 6, 0, kept});
  backend->run(ops::DivergenceTail{terms, targets, 0});
  backend->run(ops::DivergenceBackward{d, s, t, of_s, of_t, targets, terms, 6, 0, 0.25f, kept});
  double loss = 0;
  for (std::int64_t r = 0; r < 4; ++r) loss += terms.values()(r, 0) / 4;
  EXPECT_NEAR(loss, 0.7734302258668136, 1e-6);
  EXPECT_TRUE(close(d, gradient, stored(DType::f32, 1e-7)));
}

TEST(KthLargestLogit, IsThatOfSortedRowsInPieces) {
  constexpr std::int64_t kR = 3, kV = 301, kC = 160;
  const auto backend = test_backend();
  Matrix logits = random_values("logits", kR, kV, DType::f32), pieces(2 * kR, kC, 1000);
  logits(0, 7) = logits(0, 200) = 5;  // the two largest are equal
  for (std::int64_t c = 0; c < kV; ++c) logits(2, c) = static_cast<float>(logits(2, c) - 3);
  for (std::int64_t r = 0; r < kR; ++r)
    for (std::int64_t c = 0; c < kV; ++c) pieces(c / kC * kR + r, c % kC) = logits(r, c);
  const Operand stacked(pieces, DType::f32), targets(std::vector<std::int32_t>{1, -1, 2});
  for (const std::int64_t k : {1, 2, 3, 64, 300, 301}) {
    const Operand out(kR, 1, DType::f32);
    backend->run(ops::KthLargestLogit{
        .out = out, .logits = stacked, .targets = targets, .vocab = kV, .pieces = 2, .k = k});
    EXPECT_EQ(out.values()(0, 0), least_of(logits, 0, k)) << k;
    EXPECT_EQ(out.values()(1, 0), 0) << k;
    EXPECT_EQ(out.values()(2, 0), least_of(logits, 2, k)) << k;
  }
  const Operand beyond(kR, 1, DType::f32);
  backend->run(ops::KthLargestLogit{
      .out = beyond, .logits = stacked, .targets = targets, .vocab = kV, .pieces = 2, .k = 302});
  EXPECT_LT(beyond.values()(0, 0), -3e38);
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
