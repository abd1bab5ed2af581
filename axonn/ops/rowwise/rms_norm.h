#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/layer_norm.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = xhat · weight, xhat = inp · rstd, rstd = 1 / sqrt(mean of inp² + eps): LayerNorm about zero
// instead of the mean. LayerNorm's kernels (layer_norm.h) compute it, given 0 as the mean and, in
// backward, 0 as the sum of g. This file has the rest: statistics, and the norm of each head.
//
// Bound by memory, like LayerNorm. Source: Zhang and Sennrich, "Root Mean Square Layer
// Normalization", 2019.

/// out[row] = 0 and the sum of squares, from mean and sum of squared deviations of count elements.
struct MomentsAboutZeroKernel {
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
struct RmsNormSumsKernel {
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
struct HeadNormKernel {
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

namespace axonn::ops {

void MomentsAboutZero::run(auto launch) const {
  const Checker check{kName};
  check.f32("out", out, out.rows, 2);
  check.f32("moments", moments, out.rows, 2);
  launch.tiles(1, out.rows,
               rowwise::MomentsAboutZeroKernel{out, moments, static_cast<float>(count)});
}

void RmsNormSums::run(auto launch) const {
  run_norm_sums<rowwise::RmsNormSumsKernel>(launch, *this);
}

/// Checks the operands that HeadNorm and its gradients read. Returns the number of heads.
inline int check_heads(const Checker& check, const HeadNorm& norm) {
  const std::int64_t D = norm.weight.cols;
  check.values("inp", norm.inp);
  check.values("weight", norm.weight, 1, D);
  AXONN_CHECK(D > 0 && norm.inp.cols % D == 0, check.operation, ": inp is ", norm.inp,
              ", want whole heads of width ", D);
  check.f32("rstd", norm.rstd, norm.inp.rows, norm.inp.cols / D);
  return static_cast<int>(norm.inp.cols / D);
}

void HeadNorm::run(auto launch) const {
  const Checker check{kName};
  const int heads = check_heads(check, *this);
  check.like("out", out, inp);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({inp.rows, inp.cols, weight.cols},
                rowwise::HeadNormKernel<T, W>{out, inp, weight.as<const W>(), rstd, heads,
                                              width(weight), eps});
  });
}

void HeadNormBackward::run(auto launch) const {
  const Checker check{kName};
  const int heads = check_heads(check, forward);
  const View &inp = forward.inp, &weight = forward.weight;
  check.like("d_out", d_out, inp);
  check.like("d_inp", d_inp, inp);
  if (d_weight.data) check.f32("d_weight", d_weight, 1, weight.cols);
  const rowwise::RowWork work{inp.rows, inp.cols, weight.cols};
  const auto rstd = Matrix<const float>(forward.rstd);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows(work, rowwise::HeadNormBackwardKernel<T, W>{d_inp, d_out, inp, weight.as<const W>(),
                                                            rstd, heads, width(weight)});
  });
  if (!d_weight.data) return;
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.row_blocks(work, weight.cols, d_weight.as<float>(), [&](const Matrix<float>& partial) {
      return rowwise::HeadNormWeightPartials<T>{partial,  d_out, inp,          rstd,
                                                inp.rows, heads, width(weight)};
    });
  });
}

}  // namespace axonn::ops
