#pragma once

#include <cstdint>

#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = silu(gate) · up, silu(x) = x · sigmoid(x), where a row of inp is its gate, then its up. One
// team per tile of columns.
//
// Bound by memory: 3 · R · F · sizeof(T) bytes forward and 5 backward, beside one exponential per
// element. Source: Shazeer, "GLU variants improve transformer", 2020.

template <typename T>
struct SwigluForward {
  Matrix<T> out;        // (R, F)
  Matrix<const T> inp;  // (R, 2F)
  std::int64_t F;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const T* gate = inp.row(tile.row) + tile.begin;
    team.map(
        out.row(tile.row) + tile.begin, tile.count,
        [](auto g, auto u) { return g * sigmoid(g) * u; }, gate, gate + F);
  }
};

/// d_gate = d_out · up · (s + gate · s · (1 - s)), d_up = d_out · gate · s, s = sigmoid(gate).
template <typename T>
struct SwigluBackward {
  Matrix<T> d_inp;        // (R, 2F), may be inp
  Matrix<const T> d_out;  // (R, F)
  Matrix<const T> inp;    // (R, 2F)
  std::int64_t F;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const T* gate = inp.row(tile.row) + tile.begin;
    T* d_gate = d_inp.row(tile.row) + tile.begin;
    team.map_pair(
        d_gate, d_gate + F, tile.count,
        [](auto d, auto g, auto u) {
          const auto s = sigmoid(g);
          return pair(d * u * (s + g * s * (1 - s)), d * g * s);
        },
        d_out.row(tile.row) + tile.begin, gate, gate + F);
  }
};

}  // namespace axonn::rowwise
