#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/rowwise/math.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr auto kTypes = kModelTypes;
/// Rows, columns and row padding: single elements, odd sizes, more than a tile, flat and strided.
constexpr std::int64_t kShapes[][3] = {{1, 1, 0}, {3, 17, 0},    {5, 17, 4},
                                       {0, 8, 0}, {1, 20000, 0}, {30, 768, 1}};

template <typename F>
Matrix mapped(const Matrix& x, F f) {
  Matrix out = x;
  for (double& value : out.values) value = f(value);
  return out;
}

}  // namespace

TEST(Exponential, IsWithinTwoTenMillionthsFromMinus87To88ZeroBelowAndKeepsNaN) {
  double worst = 0;
  for (float x = -87; x < 88; x += 0.00137f) {
    const double want = std::exp(double{x});
    worst = std::max(worst, std::abs(rowwise::exponential(x) - want) / want);
  }
  EXPECT_LE(worst, 2e-7);
  EXPECT_EQ(rowwise::exponential(0.0f), 1);
  EXPECT_LT(rowwise::exponential(-87.7f), 1.2e-38f);
  EXPECT_EQ(rowwise::exponential(-104.5f), 0);
  EXPECT_EQ(rowwise::exponential(-std::numeric_limits<float>::infinity()), 0);
  EXPECT_GT(rowwise::exponential(1000.0f), 1e38f);
  EXPECT_TRUE(std::isnan(rowwise::exponential(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(rowwise::exponential(-std::numeric_limits<float>::quiet_NaN())));
}

TEST(Elementwise, GeluAndItsGradientEqualTheTanhFormula) {
  const auto backend = test_backend();
  for (DType type : kTypes)
    for (const auto& [R, C, gap] : kShapes) {
      Matrix x = random_values("x", R, C, type), dy = random_values("dy", R, C, type);
      for (double& value : x.values) value *= 8;  // exact; reaches values where tanh is 1
      const Operand inp(x, type, gap), d_out(dy, type, gap), out(R, C, type, 2 * gap),
          d_inp(R, C, type, gap);
      backend->run(ops::Gelu{out, inp});
      backend->run(ops::GeluBackward{d_inp, d_out, inp});
      // exp is within 2e-7 and a handful of roundings follow, on results below 9.
      const Tolerance tolerance = stored(type, 9 * 1e-6);
      EXPECT_TRUE(close(out, mapped(x, reference::gelu), tolerance));
      Matrix want = mapped(x, reference::gelu_slope);
      for (std::size_t i = 0; i < want.values.size(); ++i) want.values[i] *= dy.values[i];
      EXPECT_TRUE(close(d_inp, want, tolerance));
    }
}

TEST(Elementwise, AddAndCastTakeAnyMixOfTypesAndMayBeInPlace) {
  const auto backend = test_backend();
  for (DType out_type : kTypes)
    for (DType a_type : kTypes)
      for (DType b_type : kTypes)
        for (const auto& [R, C, gap] : kShapes) {
          if (!may_mix(out_type, a_type) || !may_mix(out_type, b_type) || !may_mix(a_type, b_type))
            continue;
          const Matrix x = random_values("x", R, C, a_type), y = random_values("y", R, C, b_type);
          const Operand a(x, a_type, gap), b(y, b_type), out(R, C, out_type, gap),
              copy(R, C, out_type);
          backend->run(ops::Add{out, a, b});
          backend->run(ops::Cast{copy, a});
          Matrix sum = x;
          for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += y.values[i];
          EXPECT_TRUE(close(out, sum, stored(out_type, 2 * rounding(DType::f32))));
          EXPECT_TRUE(close(copy, x, rounded_to(out_type)));
          if (a_type != out_type) continue;
          backend->run(ops::Add{a, a, b});
          EXPECT_TRUE(close(a, sum, stored(out_type, 2 * rounding(DType::f32))));
        }
}

TEST(Elementwise, CastRoundsToNearestEvenAndKeepsNaNAndInfinity) {
  const auto backend = test_backend();
  const double inf = std::numeric_limits<double>::infinity();
  Matrix x(1, 5);
  x.values = {1 + 0x1p-8, 1 + 0x1.8p-7, -inf, std::nan(""), 1 + 0x1.002p-8};
  const Operand inp(x, DType::f32), out(1, 5, DType::bf16);
  backend->run(ops::Cast{out, inp});
  EXPECT_EQ(out.values()(0, 0), 1);
  EXPECT_EQ(out.values()(0, 1), 1 + 0x1p-6);
  EXPECT_EQ(out.values()(0, 2), -inf);
  EXPECT_TRUE(std::isnan(out.values()(0, 3)));
  EXPECT_EQ(out.values()(0, 4), 1 + 0x1p-7);
}

TEST(Elementwise, ColumnSumAddsToWhatIsThere) {
  const auto backend = test_backend();
  for (DType type : kTypes)
    for (const auto& [R, C] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {3, 17},
                               {127, 5},
                               {128, 513},
                               {300, 768},
                               {0, 4}}) {
      const Matrix x = random_values("x", R, C, type);
      const Operand inp(x, type, 3), out(Matrix(1, C, 2), DType::f32);
      backend->run(ops::ColumnSum{out, inp});
      Matrix want(1, C, 2);
      for (std::int64_t r = 0; r < R; ++r)
        for (std::int64_t c = 0; c < C; ++c) want(0, c) += x(r, c);
      const double terms =
          static_cast<double>(R + 2);  // partial sums below R + 2, as many roundings
      EXPECT_TRUE(close(out, want, {terms * terms * rounding(DType::f32), 0}));
    }
}

TEST(Elementwise, RefusesShapesThatDiffer) {
  const Operand a(2, 3, DType::f32), b(3, 2, DType::f32), ids(std::vector<std::int32_t>{1});
  expect_refusal("add: b is (3,2) f32, want (2,3)", ops::Add{a, a, b});
  expect_refusal("gelu: out is (1,1) i32, want f32 or bf16 or f16", ops::Gelu{ids, ids});
}
