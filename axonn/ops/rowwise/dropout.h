#pragma once

#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = factor · inp where an element is kept, else 0. Whether it is kept depends only on the key
// and on its place in the whole value, so every grid keeps the same elements. One team per tile.
//
// Bound by memory: 2 · R · C · sizeof(T) bytes. Source: Srivastava et al., "Dropout", 2014.

/// The finalizer of splitmix64: every bit of the result depends on every bit of x.
AXONN_DEVICE inline std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Uniform in [0, 2^24), a function of all bits of `row` and of `col`.
AXONN_DEVICE inline std::uint32_t uniform_24(std::uint64_t row, std::uint32_t col) {
  std::uint32_t x = (col ^ static_cast<std::uint32_t>(row)) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ (x >> 13) ^ static_cast<std::uint32_t>(row >> 32)) * 0xc2b2ae3du;
  return (x ^ (x >> 16)) >> 8;
}

template <typename T>
struct DropoutKernel {
  Matrix<T> out;        // (R, C), may be inp
  Matrix<const T> inp;  // (R, C)
  std::uint64_t key, first_row;
  std::uint32_t first_col;
  std::uint32_t dropped;  // probability · 2^24
  float factor;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const std::uint64_t row = mixed(key ^ mixed(first_row + tile.row));
    const std::uint32_t col = first_col + static_cast<std::uint32_t>(tile.begin);
    team.map_indexed(
        out.row(tile.row) + tile.begin, tile.count,
        [row, col, factor = factor, dropped = dropped](int i, float x) {
          return uniform_24(row, col + i) < dropped ? 0.0f : factor * x;
        },
        inp.row(tile.row) + tile.begin);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void Dropout::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.like("out", out, inp);
  AXONN_CHECK(probability >= 0 && probability < 1, "dropout: probability ", probability,
              ", want 0 or more and less than 1");
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.tiles(
        inp.rows, inp.cols,
        rowwise::DropoutKernel<T>{out, inp, key, static_cast<std::uint64_t>(first_row),
                                  static_cast<std::uint32_t>(first_col),
                                  static_cast<std::uint32_t>(std::lround(probability * (1 << 24))),
                                  scale / (1 - probability)});
  });
}

}  // namespace axonn::ops
