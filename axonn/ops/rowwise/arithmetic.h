#pragma once

#include "axonn/ops/rowwise/elementwise.h"
#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// Arithmetic of users' models. Bound by memory: the bytes of the arguments, beside at most one
// exponential per element.

struct Relu {
  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return greatest(0.0f, x);
  }
};

struct ReluGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    return select_less(0.0f, x, d_out, 0.0f);
  }
};

struct Silu {
  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x * sigmoid(x);
  }
};

/// d_inp = d_out · (s + x · s · (1 - s)), s = sigmoid(x).
struct SiluGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    const V s = sigmoid(x);
    return d_out * (s + x * s * (1.0f - s));
  }
};

/// tanh(x) = 1 - 2 / (1 + e^2x), and a polynomial near 0, where that would lose digits: within a
/// relative error of 5e-7. Source of the polynomial: Moshier, Cephes library, tanhf.
struct Tanh {
  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    const V squared = x * x;
    V p = squared * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * squared - 5.37397155531e-2f;
    p = p * squared + 1.33314422036e-1f;
    p = p * squared - 3.33332819422e-1f;
    const V within = least(20.0f, x);  // there it is 1, and e^2x is finite
    const V far = 1.0f - 2.0f / (1.0f + exponential(2.0f * within));
    return select_less(squared, 0.390625f, p * squared * x + x, far);
  }
};

struct TanhGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    const V t = Tanh{}(x);
    return d_out * ((1.0f - t) * (1.0f + t));
  }
};

struct Times {
  template <typename V>
  AXONN_DEVICE V operator()(V a, V b) const {
    return a * b;
  }
};

template <typename T>
struct ScaleKernel {
  Matrix<T> out;
  Matrix<const T> inp;
  float factor;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.map(
        out.row(tile.row) + tile.begin, tile.count, [by = factor](auto x) { return x * by; },
        inp.row(tile.row) + tile.begin);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Calls f with the function of this kind and its gradient.
template <typename F>
void with_activation(ActivationKind kind, F f) {
  switch (kind) {
    case ActivationKind::relu:
      return f(rowwise::Relu{}, rowwise::ReluGradient{});
    case ActivationKind::silu:
      return f(rowwise::Silu{}, rowwise::SiluGradient{});
    case ActivationKind::tanh:
      return f(rowwise::Tanh{}, rowwise::TanhGradient{});
  }
}

/// out = F(a, b), elementwise, of one element type.
template <typename F>
void run_binary_of_one_type(auto launch, View out, View a, View b) {
  flatten(out, a, b);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.tiles(out.rows, out.cols, rowwise::Binary<F, T, T, T>{out, a, b});
  });
}

void Activation::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.like("out", out, inp);
  View to = out, from = inp;
  flatten(to, from);
  with_activation(kind, [&]<typename F>(F, auto) {
    with_type(to.dtype, [&]<typename T>(T) {
      launch.tiles(to.rows, to.cols, rowwise::Unary<F, T, T>{to, from});
    });
  });
}

void ActivationBackward::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.like("d_inp", d_inp, inp);
  check.like("d_out", d_out, inp);
  with_activation(
      kind, [&]<typename F>(auto, F) { run_binary_of_one_type<F>(launch, d_inp, d_out, inp); });
}

void Multiply::run(auto launch) const {
  const Checker check{kName};
  check.values("out", out);
  check.like("a", a, out);
  check.like("b", b, out);
  run_binary_of_one_type<rowwise::Times>(launch, out, a, b);
}

void Scale::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.like("out", out, inp);
  View to = out, from = inp;
  flatten(to, from);
  with_type(to.dtype, [&]<typename T>(T) {
    launch.tiles(to.rows, to.cols, rowwise::ScaleKernel<T>{to, from, factor});
  });
}

}  // namespace axonn::ops
