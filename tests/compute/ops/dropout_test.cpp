#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// The result of dropout for a matrix of ones.
Matrix kept_of(std::int64_t rows, std::int64_t cols, ops::Dropout args) {
  const Operand ones(Matrix(rows, cols, 1), DType::f32), out(rows, cols, DType::f32);
  args.inp = ones;
  args.out = out;
  test_backend()->run(args);
  return out.values();
}

double mean_of(const Matrix& m) {
  double sum = 0;
  for (double value : m.values) sum += value;
  return sum / static_cast<double>(m.values.size());
}

}  // namespace

TEST(Dropout, WithProbabilityZeroScales) {
  for (DType type : kModelTypes) {
    const Operand inp(random_values("inp", 5, 70, type), type, 3), out(5, 70, type, 1);
    test_backend()->run(ops::Dropout{.out = out, .inp = inp, .scale = 0.5f});
    Matrix want = inp.values();
    for (double& value : want.values) value *= 0.5;
    EXPECT_TRUE(close(out, want, {})) << name_of(type);
  }
}

TEST(Dropout, ZeroesElementsWithTheProbabilityAndKeepsTheMean) {
  for (float p : {0.1f, 0.5f, 0.9f}) {
    const Matrix kept = kept_of(200, 1000, {.probability = p, .key = 7});
    const double n = 200 * 1000, zeros = std::ranges::count(kept.values, 0.0);
    // Five standard deviations of n independent draws.
    EXPECT_NEAR(zeros / n, p, 5 * std::sqrt(p * (1 - p) / n));
    EXPECT_NEAR(mean_of(kept), 1, 5 * std::sqrt(p * (1 - p) / n) / (1 - p));
  }
}

TEST(Dropout, OfAPieceEqualsThatPieceOfTheWhole) {
  const ops::Dropout args{.probability = 0.4f, .key = 99};
  const Matrix whole = kept_of(40, 300, args);
  ops::Dropout piece = args;
  piece.first_row = 13;
  piece.first_col = 70;
  const Matrix part = kept_of(20, 100, piece);
  for (std::int64_t r = 0; r < 20; ++r)
    for (std::int64_t c = 0; c < 100; ++c) ASSERT_EQ(part(r, c), whole(13 + r, 70 + c));
}

// Two independent choices of probability 0.5 agree for half of the elements.
TEST(Dropout, WithAnotherKeyRowOrColumnMakesAnotherChoice) {
  const Matrix one = kept_of(100, 400, {.probability = 0.5f, .key = 1});
  const auto agreement = [&](const Matrix& other) {
    double same = 0;
    for (std::size_t i = 0; i < one.values.size(); ++i) same += one.values[i] == other.values[i];
    return same / static_cast<double>(one.values.size());
  };
  const double five_deviations = 5 * std::sqrt(0.25 / 40000);
  for (const ops::Dropout& other :
       {ops::Dropout{.probability = 0.5f, .key = 2},
        ops::Dropout{.probability = 0.5f, .key = 1, .first_row = 1},
        ops::Dropout{.probability = 0.5f, .key = 1, .first_row = 1LL << 40},
        ops::Dropout{.probability = 0.5f, .key = 1, .first_col = 1}})
    EXPECT_NEAR(agreement(kept_of(100, 400, other)), 0.5, five_deviations);
}

TEST(Dropout, RefusesToDropEverything) {
  const Operand x(2, 2, DType::f32);
  expect_refusal("dropout: probability 1", ops::Dropout{.out = x, .inp = x, .probability = 1});
}
