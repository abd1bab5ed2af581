#pragma once

#include <cstdint>

#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = silu(gate) · up, silu(x) = x · sigmoid(x), where a row of inp is its gate, then its up. One
// team per tile of columns.
//
// Bound by memory: 3 · R · F · sizeof(T) bytes forward and 5 backward, beside one exponential per
// element. Source: Shazeer, "GLU variants improve transformer", 2020.

template <typename T>
struct SwigluKernel {
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
struct SwigluBackwardKernel {
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

namespace axonn::ops {

/// Checks inp (R, 2F), and `half` (R, F) of its type.
inline void check_gated(const Checker& check, const View& inp, const char* name, const View& half) {
  check.values("inp", inp);
  AXONN_CHECK(inp.cols % 2 == 0, check.operation, ": inp is ", inp,
              ", want an even number of columns: gate, then up");
  check.typed(name, half, inp.dtype, inp.rows, inp.cols / 2);
}

void Swiglu::run(auto launch) const {
  check_gated({kName}, inp, "out", out);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.tiles(out.rows, out.cols, rowwise::SwigluKernel<T>{out, inp, out.cols});
  });
}

void SwigluBackward::run(auto launch) const {
  const Checker check{kName};
  check_gated(check, inp, "d_out", d_out);
  check.like("d_inp", d_inp, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.tiles(d_out.rows, d_out.cols,
                 rowwise::SwigluBackwardKernel<T>{d_inp, d_out, inp, d_out.cols});
  });
}

}  // namespace axonn::ops
