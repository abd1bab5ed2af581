#pragma once

#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = f(inp...) elementwise. One team per tile. Bound by memory: the bytes of the arguments.

/// The tanh form of GELU: x/2 · (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x³), written as
/// x · sigmoid(2u), which is the same and loses no digits where tanh(u) is near -1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
struct Gelu {
  static constexpr float kLinear = 1.595769122f;  // 2u = x · (kLinear + kCubic · x²)
  static constexpr float kCubic = 0.044715f * kLinear;

  /// x², capped where sigmoid(2u) is 0 or 1 already, so that no float overflows.
  template <typename V>
  [[gnu::always_inline]] AXONN_DEVICE static V square(V x) {
    return least(x * x, 1e4f);
  }
  /// 1 + e^-2u = 1 / sigmoid(2u).
  template <typename V>
  [[gnu::always_inline]] AXONN_DEVICE static V inverse_sigmoid(V x, V squared) {
    return 1.0f + power_of_two(x * (-kLog2E * kLinear - kLog2E * kCubic * squared));
  }

  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x / inverse_sigmoid(x, square(x));
  }
};

/// d_inp = d_out · (s + x · s · (1 - s) · d(2u)/dx), s = sigmoid(2u).
struct GeluGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    const V squared = Gelu::square(x), s = 1.0f / Gelu::inverse_sigmoid(x, squared);
    const V slope = x * (Gelu::kLinear + 3 * Gelu::kCubic * squared);
    return d_out * (s + s * (slope * (1.0f - s)));
  }
};

struct Add {
  template <typename V>
  AXONN_DEVICE V operator()(V a, V b) const {
    return a + b;
  }
};

struct Identity {
  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x;
  }
};

template <typename F, typename Out, typename In>
struct Unary {
  Matrix<Out> out;
  Matrix<const In> inp;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.map(out.row(tile.row) + tile.begin, tile.count, F{}, inp.row(tile.row) + tile.begin);
  }
};

template <typename F, typename Out, typename A, typename B>
struct Binary {
  Matrix<Out> out;
  Matrix<const A> a;
  Matrix<const B> b;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.map(out.row(tile.row) + tile.begin, tile.count, F{}, a.row(tile.row) + tile.begin,
             b.row(tile.row) + tile.begin);
  }
};

}  // namespace axonn::rowwise
