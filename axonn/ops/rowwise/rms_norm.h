#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = xhat · weight, xhat = inp · rstd, rstd = 1 / sqrt(mean of inp² + eps): LayerNorm about zero
// instead of the mean. LayerNorm's kernels (layer_norm.h) compute it, given 0 as the mean and, in
// backward, 0 as the sum of g. This file has the rest: statistics, and the norm of each head.
//
// Bound by memory, like LayerNorm. Source: Zhang and Sennrich, "Root Mean Square Layer
// Normalization", 2019.

/// out[row] = 0 and the sum of squares, from mean and sum of squared deviations of count elements.
struct MomentsAboutZero {
  Matrix<float> out;            // (R, 2)
  Matrix<const float> moments;  // (R, 2)
  float count;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.each(tile.count, [&](int i) {
      const float mean = moments.row(tile.begin + i)[0], m2 = moments.row(tile.begin + i)[1];
      out.row(tile.begin + i)[0] = 0;
      out.row(tile.begin + i)[1] = m2 + count * mean * mean;
    });
  }
};

/// out[row] = 0 and the sum over this piece of g · xhat, g = d_out · weight.
template <typename T, typename W>
struct RmsNormSums {
  Matrix<float> out;           // (R, 2)
  Matrix<const T> d_out, inp;  // (R, C)
  const W* weight;             // (C)
  Matrix<const float> stats;   // (R, 2) 0, rstd
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const float g_x = team.sum(
        C, [](auto d, auto w, auto x) { return d * w * x; }, d_out.row(row), weight, inp.row(row));
    team.once([&] {
      out.row(row)[0] = 0;
      out.row(row)[1] = g_x * stats.row(row)[1];
    });
  }
};

/// The norm over each head's D columns, with one weight (D) for all heads. One team per row.
template <typename T, typename W>
struct HeadNormForward {
  Matrix<T> out;        // (R, h · D)
  Matrix<const T> inp;  // (R, h · D)
  const W* weight;      // (D)
  Matrix<float> rstd;   // (R, h)
  int heads, D;
  float eps;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    for (int h = 0; h < heads; ++h) {
      const T* x = inp.row(row) + h * D;
      const float squares = team.sum(
          D, [](auto v) { return v * v; }, x);
      const float scale = 1 / std::sqrt(squares / static_cast<float>(D) + eps);
      team.map(
          out.row(row) + h * D, D, [=](auto v, auto w) { return v * scale * w; }, x, weight);
      team.once([&] { rstd.row(row)[h] = scale; });
    }
  }
};

/// d_inp = rstd · (g - xhat · mean(g · xhat)), head by head.
template <typename T, typename W>
struct HeadNormBackwardKernel {
  Matrix<T> d_inp;             // (R, h · D)
  Matrix<const T> d_out, inp;  // (R, h · D)
  const W* weight;             // (D)
  Matrix<const float> rstd;    // (R, h)
  int heads, D;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    for (int h = 0; h < heads; ++h) {
      const T *x = inp.row(row) + h * D, *dy = d_out.row(row) + h * D;
      const float scale = rstd.row(row)[h];
      const float g_x = team.sum(
          D, [](auto d, auto w, auto v) { return d * w * v; }, dy, weight, x);
      const float factor = scale * scale * g_x / static_cast<float>(D);
      team.map(
          d_inp.row(row) + h * D, D,
          [=](auto d, auto w, auto v) { return scale * (d * w - v * factor); }, dy, weight, x);
    }
  }
};

/// partial[block] = the sums of d_out · xhat over the heads of the block's rows, in their order.
/// One team per block of kRowBlock rows, as in columns.h.
template <typename T>
struct HeadNormWeightPartials {
  Matrix<float> partial;       // (blocks, D)
  Matrix<const T> d_out, inp;  // (R, h · D)
  Matrix<const float> rstd;    // (R, h)
  std::int64_t R;
  int heads, D;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * kRowBlock, end = std::min(begin + kRowBlock, R);
    float* sums = partial.row(block);
    team.map(sums, D, [] { return 0.0f; });
    for (std::int64_t row = begin; row < end; ++row)
      for (int h = 0; h < heads; ++h) {
        const float scale = rstd.row(row)[h];
        team.map(
            sums, D, [=](auto sum, auto d, auto v) { return sum + d * (v * scale); }, sums,
            d_out.row(row) + h * D, inp.row(row) + h * D);
      }
  }
};

}  // namespace axonn::rowwise
