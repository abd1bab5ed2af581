#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Values of both signs, from 8 to 1e-7, and 0.
Matrix values_around_zero(std::int64_t R, std::int64_t C, DType type) {
  Matrix x = random_values("x", R, C, type);
  const std::array<double, 4> scales = {8, 0x1p-3, 0x1p-12, 0x1p-22};
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] *= scales[i % scales.size()];
  if (!x.values.empty()) x.values.front() = 0;
  return x;
}

}  // namespace

TEST(Xielu, AndItsGradientsEqualPlainLoopsAlsoInPlace) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, C] :
         {std::array<std::int64_t, 2>{1, 1}, {3, 17}, {2, 9000}, {300, 688}, {0, 4}}) {
      SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type));
      const Matrix x = values_around_zero(R, C, type), d = random_values("dy", R, C, type);
      const Operand p(Matrix(1, 1, 0.203125), type), n(Matrix(1, 1, -1.046875), type),
          inp(x, type, 3), d_out(d, type, 1), out(R, C, type, 2), d_inp(R, C, type, 4),
          sums(R, 2, DType::f32), d_p(Matrix(1, 1, 2), DType::f32),
          d_n(Matrix(1, 1, 3), DType::f32);
      const ops::Xielu forward{.out = out, .inp = inp, .p = p, .n = n};
      backend->run(forward);
      backend->run(ops::XieluBackward{forward, d_inp, d_out, sums, d_p, d_n});
      Matrix want(R, C), want_d(R, C), want_p(1, 1, 2), want_n(1, 1, 3);
      const double pp = p.values()(0, 0), nn = n.values()(0, 0);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const auto slopes = reference::xielu_slopes(x.values[i], pp, nn);
        want.values[i] = reference::xielu(x.values[i], pp, nn);
        want_d.values[i] = d.values[i] * slopes.x;
        want_p(0, 0) += d.values[i] * slopes.p;
        want_n(0, 0) += d.values[i] * slopes.n;
      }
      // The exponential is within 2e-7, a handful of roundings follow, and results are below 60.
      const Tolerance tolerance = stored(type, 60 * 1e-6);
      EXPECT_TRUE(close(out, want, tolerance));
      EXPECT_TRUE(close(d_inp, want_d, tolerance));
      // Terms below 64 in magnitude, whose signs are random: sums are below 64 sqrt(8 count).
      const double count = static_cast<double>(R * C), sum = 64 * std::sqrt(8 * count) + 4;
      const double roundings = static_cast<double>(C) / 8 + static_cast<double>(R) + 16;
      EXPECT_TRUE(close(d_p, want_p, {sum * roundings * rounding(DType::f32), 0}));
      EXPECT_TRUE(close(d_n, want_n, {sum * roundings * rounding(DType::f32), 0}));
      backend->run(ops::XieluBackward{forward, d_out, d_out});
      EXPECT_TRUE(close(d_out, d_inp.values(), {})) << "in place, and without sums";
    }
}

TEST(Xielu, KeepsItsDigitsNearZero) {
  const auto backend = test_backend();
  Matrix x(1, 33);
  for (int i = 0; i < 33; ++i) x.values[i] = -std::ldexp(1.0, -i);
  const Operand p(Matrix(1, 1, 0), DType::f32), n(Matrix(1, 1, 4), DType::f32), inp(x, DType::f32),
      out(1, 33, DType::f32), d_inp(1, 33, DType::f32), d_out(Matrix(1, 33, 1), DType::f32);
  const ops::Xielu forward{.out = out, .inp = inp, .p = p, .n = n};
  backend->run(forward);
  backend->run(ops::XieluBackward{forward, d_inp, d_out});
  Matrix want(1, 33), want_d(1, 33);
  for (int i = 0; i < 33; ++i) {
    want.values[i] = reference::xielu(x.values[i], 0, 4);
    want_d.values[i] = reference::xielu_slopes(x.values[i], 0, 4).x;
  }
  // The terms cancel most digits only near -1.
  EXPECT_TRUE(close(out, want, {1e-12, 4e-6}));
  EXPECT_TRUE(close(d_inp, want_d, {1e-6, 4e-6}));
}

TEST(Xielu, NaNStaysNaN) {
  const auto backend = test_backend();
  const Operand p(1, 1, DType::f32), inp(Matrix(1, 20, NAN), DType::f32), out(1, 20, DType::f32);
  backend->run(ops::Xielu{.out = out, .inp = inp, .p = p, .n = p});
  EXPECT_THAT(out.values().values, testing::Each(testing::IsNan()));
}

TEST(Xielu, RefusesNumbersThatAreNotOne) {
  const Operand x(4, 2, DType::f32), one(1, 1, DType::f32), two(1, 2, DType::f32);
  expect_refusal("xielu: p is (1,2) f32, want (1,1)", ops::Xielu{x, x, two, one});
  expect_refusal("xielu_backward: sums is (1,2) f32, want (4,2)",
                 ops::XieluBackward{{x, x, one, one}, x, x, two, one, one});
}
