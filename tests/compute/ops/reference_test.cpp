#include "tests/support/reference.h"

#include <gtest/gtest.h>

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// A loss whose gradient at `out` is `weights`: the sum of all elements times these.
double weighted(const Matrix& out, const Matrix& weights) {
  double total = 0;
  for (std::size_t i = 0; i < out.values.size(); ++i) total += out.values[i] * weights.values[i];
  return total;
}

/// Central differences with step 1e-5 on losses of order 1 to 10 are accurate to about 1e-9.
constexpr Tolerance kTolerance{1e-8, 1e-8};

}  // namespace

TEST(Reference, LayerNormGradientsAreFiniteDifferences) {
  const Matrix x = random_values("x", 3, 7, DType::f32), w = random_values("w", 1, 7, DType::f32),
               b = random_values("b", 1, 7, DType::f32), dy = random_values("dy", 3, 7, DType::f32);
  const auto d = layer_norm_backward(dy, x, w, 1e-5);
  const auto loss = [&](const Matrix& x1, const Matrix& w1, const Matrix& b1) {
    return weighted(layer_norm(x1, w1, b1, 1e-5), dy);
  };
  EXPECT_TRUE(
      close(d.d_inp, finite_differences(x, [&](auto& m) { return loss(m, w, b); }), kTolerance));
  EXPECT_TRUE(
      close(d.d_weight, finite_differences(w, [&](auto& m) { return loss(x, m, b); }), kTolerance));
  EXPECT_TRUE(
      close(d.d_bias, finite_differences(b, [&](auto& m) { return loss(x, w, m); }), kTolerance));
}

TEST(Reference, RmsNormGradientsAreFiniteDifferences) {
  const Matrix x = random_values("x", 3, 7, DType::f32), w = random_values("w", 1, 7, DType::f32),
               dy = random_values("dy", 3, 7, DType::f32);
  const auto d = rms_norm_backward(dy, x, w, 1e-2);
  const auto loss = [&](const Matrix& x1, const Matrix& w1) {
    return weighted(rms_norm(x1, w1, 1e-2), dy);
  };
  EXPECT_TRUE(
      close(d.d_inp, finite_differences(x, [&](auto& m) { return loss(m, w); }), kTolerance));
  EXPECT_TRUE(
      close(d.d_weight, finite_differences(w, [&](auto& m) { return loss(x, m); }), kTolerance));
}

TEST(Reference, RotaryAndSwigluGradientsAreFiniteDifferences) {
  const Matrix x = random_values("x", 6, 8, DType::f32), dy = random_values("dy", 6, 8, DType::f32),
               d_half = random_values("d_half", 6, 4, DType::f32);
  const std::vector<double> frequencies{1, 0.3};
  EXPECT_TRUE(
      close(rotary(dy, 3, frequencies, -1),
            finite_differences(x, [&](auto& m) { return weighted(rotary(m, 3, frequencies), dy); }),
            kTolerance));
  EXPECT_TRUE(close(swiglu_backward(d_half, x),
                    finite_differences(x, [&](auto& m) { return weighted(swiglu(m), d_half); }),
                    kTolerance));
}

TEST(Reference, GeluSlopeIsAFiniteDifference) {
  for (double x = -5; x < 5; x += 0.37)
    EXPECT_NEAR(reference::gelu_slope(x),
                (reference::gelu(x + 1e-5) - reference::gelu(x - 1e-5)) / 2e-5, 1e-9);
}

TEST(Reference, SiluSlopeAndSoftmaxGradientAreFiniteDifferences) {
  for (double x = -5; x < 5; x += 0.37)
    EXPECT_NEAR(reference::silu_slope(x),
                (reference::silu(x + 1e-5) - reference::silu(x - 1e-5)) / 2e-5, 1e-9);
  const Matrix x = random_values("x", 3, 7, DType::f32), dy = random_values("dy", 3, 7, DType::f32);
  EXPECT_TRUE(close(softmax_backward(dy, x),
                    finite_differences(x, [&](auto& m) { return weighted(softmax(m), dy); }),
                    kTolerance));
}

TEST(Reference, AttentionGradientsAreFiniteDifferencesWithGroupsAFirstQueryAndAWindow) {
  const reference::AttentionShape shape{4, 3, 2, 3, 2, 1, 0.7, 3};
  const Matrix q = random_values("q", 8, 9, DType::f32), k = random_values("k", 8, 6, DType::f32),
               v = random_values("v", 8, 6, DType::f32), dy = random_values("dy", 8, 9, DType::f32);
  const auto d = attention_backward(dy, q, k, v, shape);
  const auto loss = [&](const Matrix& q1, const Matrix& k1, const Matrix& v1) {
    return weighted(attention(q1, k1, v1, shape).out, dy);
  };
  EXPECT_TRUE(
      close(d.d_q, finite_differences(q, [&](auto& m) { return loss(m, k, v); }), kTolerance));
  EXPECT_TRUE(
      close(d.d_k, finite_differences(k, [&](auto& m) { return loss(q, m, v); }), kTolerance));
  EXPECT_TRUE(
      close(d.d_v, finite_differences(v, [&](auto& m) { return loss(q, k, m); }), kTolerance));
}

TEST(Reference, CrossEntropyGradientIsAFiniteDifferenceAndIgnoresNegativeTargets) {
  const Matrix x = random_values("x", 4, 6, DType::f32);
  const std::vector<std::int32_t> targets{5, -1, 0, 2};
  for (const double z : {0.0, 0.3}) {
    const auto loss = [&](const Matrix& m) {
      return weighted(cross_entropy(m, targets), Matrix(4, 1, 1)) +
             z * weighted(squared_log_sums(m, targets), Matrix(4, 1, 1));
    };
    EXPECT_TRUE(
        close(cross_entropy_backward(x, targets, z), finite_differences(x, loss), kTolerance));
  }
}

TEST(Reference, RouteGradientsAreFiniteDifferencesOfWeightsScoresAndLogSumsOfTheSameChoice) {
  const Matrix x = random_values("x", 4, 6, DType::f32);
  const reference::Routing d{{},
                             random_values("d_weights", 4, 3, DType::f32),
                             random_values("d_scores", 4, 6, DType::f32),
                             random_values("d_log_sums", 4, 1, DType::f32)};
  for (const bool sigmoid : {false, true})
    for (const bool normalise : {false, true}) {
      reference::Router router{.k = 3,
                               .sigmoid = sigmoid,
                               .normalise = normalise,
                               .scale = 2.5,
                               .bias = {0, 1, 0, 2, 0, 0}};
      router.chosen = route(x, router).ids;
      const auto loss = [&](const Matrix& logits) {
        const reference::Routing made = route(logits, router);
        return weighted(made.weights, d.weights) + weighted(made.scores, d.scores) +
               weighted(made.log_sums, d.log_sums);
      };
      EXPECT_TRUE(close(route_backward(d, x, router), finite_differences(x, loss), kTolerance));
    }
}
