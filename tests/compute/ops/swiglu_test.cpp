#include <algorithm>
#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

TEST(Swiglu, AndItsGradientEqualPlainLoopsAlsoInPlace) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, F] : {std::array<std::int64_t, 2>{1, 1}, {3, 17}, {2, 9000}, {40, 688}}) {
      SCOPED_TRACE(testing::Message() << '(' << R << ',' << F << ") " << name_of(type));
      Matrix x = random_values("x", R, 2 * F, type);
      for (double& value : x.values) value *= 8;
      const Operand inp(x, type, 3), d_out(random_values("dy", R, F, type), type, 1),
          out(R, F, type, 2), d_inp(R, 2 * F, type, 4);
      backend->run(ops::Swiglu{out, inp});
      backend->run(ops::SwigluBackward{d_inp, d_out, inp});
      // The sigmoid is within 3e-7, and a handful of roundings follow, on results below 64.
      const Tolerance tolerance = stored(type, 64 * 1e-6);
      EXPECT_TRUE(close(out, reference::swiglu(x), tolerance));
      EXPECT_TRUE(close(d_inp, swiglu_backward(d_out.values(), x), tolerance));
      backend->run(ops::SwigluBackward{inp, d_out, inp});
      EXPECT_TRUE(close(inp, d_inp.values(), {})) << "in place";
    }
}

TEST(Swiglu, WithAGateByGeluAndItsGradientEqualPlainLoops) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [R, F] : {std::array<std::int64_t, 2>{1, 1}, {3, 17}, {40, 688}}) {
      SCOPED_TRACE(testing::Message() << '(' << R << ',' << F << ") " << name_of(type));
      const Matrix x = random_values("x", R, 2 * F, type), d = random_values("dy", R, F, type);
      Matrix want(R, F), d_want(R, 2 * F);
      for (std::int64_t r = 0; r < R; ++r)
        for (std::int64_t c = 0; c < F; ++c) {
          const double gate = x(r, c), up = x(r, F + c);
          want(r, c) = reference::gelu(gate) * up;
          d_want(r, c) = d(r, c) * up * reference::gelu_slope(gate);
          d_want(r, F + c) = d(r, c) * reference::gelu(gate);
        }
      const Operand inp(x, type, 3), d_out(d, type, 1), out(R, F, type, 2),
          d_inp(R, 2 * F, type, 4);
      backend->run(ops::Swiglu{out, inp, {ops::GateKind::gelu}});
      backend->run(ops::SwigluBackward{d_inp, d_out, inp, {ops::GateKind::gelu}});
      EXPECT_TRUE(close(out, want, stored(type, 2e-6)));
      EXPECT_TRUE(close(d_inp, d_want, stored(type, 2e-6)));
    }
}

TEST(Swiglu, WithAClampedGateAndItsGradientEqualPlainLoops) {
  const auto backend = test_backend();
  constexpr double kLimit = 1.5, kAlpha = 1.702;
  for (DType type : kModelTypes) {
    const std::int64_t R = 40, F = 88;
    SCOPED_TRACE(name_of(type));
    Matrix x = random_values("x", R, 2 * F, type);
    const Matrix d = random_values("dy", R, F, type);
    for (double& value : x.values) value *= 4;  // some within the limit, some beyond it
    x(0, 0) = x(0, F) = kLimit;                 // at it, gradients pass
    Matrix want(R, F), d_want(R, 2 * F);
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < F; ++c) {
        const double g = std::min(x(r, c), kLimit), up = x(r, F + c),
                     u = std::clamp(up, -kLimit, kLimit), s = 1 / (1 + std::exp(-kAlpha * g));
        want(r, c) = g * s * (u + 1);
        d_want(r, c) = x(r, c) > kLimit ? 0 : d(r, c) * (u + 1) * (s + kAlpha * g * s * (1 - s));
        d_want(r, F + c) = std::abs(up) > kLimit ? 0 : d(r, c) * g * s;
      }
    const ops::Gate gate{ops::GateKind::clamped, kAlpha, kLimit};
    const Operand inp(x, type, 3), d_out(d, type, 1), out(R, F, type, 2), d_inp(R, 2 * F, type, 4);
    backend->run(ops::Swiglu{out, inp, gate});
    backend->run(ops::SwigluBackward{d_inp, d_out, inp, gate});
    EXPECT_TRUE(close(out, want, stored(type, 1e-5)));
    EXPECT_TRUE(close(d_inp, d_want, stored(type, 1e-5)));
  }
}

TEST(Swiglu, RefusesAnOddNumberOfColumns) {
  const Operand out(4, 2, DType::f32), odd(4, 3, DType::f32);
  expect_refusal("swiglu: inp is (4,3) f32, want an even number of columns", ops::Swiglu{out, odd});
}
