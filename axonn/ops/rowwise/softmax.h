#pragma once

#include <cstdint>

#include "axonn/ops/rowwise/head_dots.h"
#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// p = exp(x - maximum) / sum of exp(x - maximum) of each row, which is cut into pieces. Their
// statistics are those of the loss, see cross_entropy.h. One team per row. Bound by memory:
// 2 · R · C · sizeof(T) bytes forward and 5 backward, beside one exponential per element.

/// Combines the stats of the pieces in their order, so that all pieces get the same bits.
template <typename T>
struct SoftmaxKernel {
  Matrix<T> out;              // (R, C)
  Matrix<const T> inp;        // (R, C)
  Matrix<const float> stats;  // (pieces · R, 2)
  std::int64_t R, pieces;
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    float most = stats.row(row)[0];
    for (std::int64_t p = 1; p < pieces; ++p) most = greatest(stats.row(p * R + row)[0], most);
    float total = 0;
    for (std::int64_t p = 0; p < pieces; ++p) {
      const float* piece = stats.row(p * R + row);
      total += piece[1] * exponential(piece[0] - most);
    }
    const float each = 1 / total;
    team.map(
        out.row(row), C, [=](auto x) { return exponential(x - most) * each; }, inp.row(row));
  }
};

/// d_inp = out · (d_out - dots).
template <typename T>
struct SoftmaxBackwardKernel {
  Matrix<T> d_inp;             // (R, C)
  Matrix<const T> d_out, out;  // (R, C)
  Matrix<const float> dots;    // (R, 1)
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const float dot = dots.row(row)[0];
    team.map(
        d_inp.row(row), C, [=](auto d, auto p) { return p * (d - dot); }, d_out.row(row),
        out.row(row));
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void Softmax::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.like("out", out, inp);
  if (inp.rows == 0) return;
  const std::int64_t pieces = stats.rows / inp.rows;
  AXONN_CHECK(pieces >= 1, check.operation, ": stats is ", stats, ", want at least ", inp.rows,
              " rows");
  check.f32("stats", stats, pieces * inp.rows, 2);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols},
                rowwise::SoftmaxKernel<T>{out, inp, stats, inp.rows, pieces, width(inp)});
  });
}

void RowDots::run(auto launch) const {
  const Checker check{kName};
  check.values("a", a);
  check.like("b", b, a);
  check.f32("out", out, a.rows, 1);
  with_type(a.dtype, [&]<typename T>(T) {
    launch.rows({a.rows, a.cols}, rowwise::HeadDots<T>{out, a, b, 1, width(a)});
  });
}

void SoftmaxBackward::run(auto launch) const {
  const Checker check{kName};
  check.values("out", out);
  check.like("d_inp", d_inp, out);
  check.like("d_out", d_out, out);
  check.f32("dots", dots, out.rows, 1);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.rows({out.rows, out.cols},
                rowwise::SoftmaxBackwardKernel<T>{d_inp, d_out, out, dots, width(out)});
  });
}

}  // namespace axonn::ops
