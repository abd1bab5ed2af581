#pragma once

#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = f(inp...) element by element, a tile a team. Bound by memory: the bytes of the arguments.

/// The tanh form of GELU: x/2 · (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x³), written as
/// x · sigmoid(2u), which is the same and loses no digits where tanh(u) is near -1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
struct Gelu {
  static constexpr float kLinear = 1.595769122f;  // 2u = x · (kLinear + kCubic · x²)
  static constexpr float kCubic = 0.044715f * kLinear;

  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x * sigmoid(x * (kLinear + kCubic * (x * x)));
  }
};

/// d_inp = d_out · (s + x · s · (1 - s) · d(2u)/dx), s = sigmoid(2u).
struct GeluGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    const V square = x * x, s = sigmoid(x * (Gelu::kLinear + Gelu::kCubic * square));
    const V slope = Gelu::kLinear + 3 * Gelu::kCubic * square;
    return d_out * (s + (x * s) * slope * (1.0f - s));
  }
};

struct Add {
  AXONN_DEVICE float operator()(float a, float b) const { return a + b; }
};

struct Identity {
  AXONN_DEVICE float operator()(float x) const { return x; }
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
