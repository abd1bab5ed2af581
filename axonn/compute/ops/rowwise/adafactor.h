#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// Adafactor: second moments of which a matrix keeps only the means over its rows and columns.
// Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
// 2018, arXiv:1804.04235, algorithms 4 to 6.

struct Square {
  AXONN_DEVICE auto operator()(auto x) const { return x * x; }
};

/// rows[r] += share · sum of squares of the scaled row r. One team per row.
/// Bound by memory: 4 bytes per element.
struct RowSquares {
  float* rows;
  Matrix<const float> gradient;  // (R, C)
  int C;
  const float* scale;  ///< the gradient's factor, or null for 1
  float share;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t r) const {
    const float squares = team.sum(C, Square{}, gradient.row(r)), factor = scale ? *scale : 1;
    team.once([&] { rows[r] += share * factor * factor * squares; });
  }
};

/// The term of a sum of squares down columns.
struct ScaledSquare {
  float factor;
  AXONN_DEVICE auto operator()(auto x) const { return factor * x * x; }
};
struct SquareTerm {
  const float* scale;
  float share;

  AXONN_DEVICE ScaledSquare operator()(std::int64_t) const {
    const float factor = scale ? *scale : 1;
    return {share * factor * factor};
  }
};

/// 1 / sqrt(V) of ops::FactoredMoment, times the gradient's factor.
struct FactoredRoots {
  const float *rows, *cols;  ///< rows: null for a vector
  const double* sum;
  const float* scale;  ///< the gradient's factor, or null for 1
  float count, added, lowest;

  /// The multipliers of the gradients of row r, given the values of `cols`.
  struct OfRow {
    float row, most, factor, added;
    AXONN_DEVICE auto operator()(auto g, auto col) const {
      return factor * (g * least(row * quotient(1.0f, square_root(col + added)), most));
    }
  };
  AXONN_DEVICE OfRow of_row(std::int64_t r) const {
    float row = 1;
    if (rows) {
      const float mean = static_cast<float>(*sum / double{count}) + added;
      row = std::sqrt(greatest(mean, lowest) / (rows[r] + added));
    }
    return {row, lowest > 0 ? 1 / lowest : std::numeric_limits<float>::max(), scale ? *scale : 1,
            added};
  }
};

/// Sums of squares of g / sqrt(V). One team per tile.
/// Bound by memory: 4 bytes per element, if `cols` stays in cache.
struct AdafactorSquaresPartials {
  double* partial;               // (tiles)
  Matrix<const float> gradient;  // (R, C)
  FactoredRoots roots;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const float total = team.sum(
        tile.count,
        [of = roots.of_row(tile.row)](auto g, auto col) {
          const auto u = of(g, col);
          return u * u;
        },
        gradient.at(tile), roots.cols + tile.begin);
    team.once([&] { partial[tile.index] = total; });
  }
};

/// The step of ops::Adafactor. One team per tile.
/// Bound by memory: 12 + sizeof(Out) bytes per element, 8 more with momentum, if `cols` stays in
/// cache.
template <typename Out>
struct AdafactorKernel {
  Matrix<Out> out;
  Matrix<float> master;
  Matrix<const float> gradient;
  Matrix<float> momentum;  ///< or absent
  FactoredRoots roots;
  const double *step_squares, *weight_squares;  ///< weight_squares: or null
  double count;
  float step, least_size, threshold, beta1, shrink, weight_decay;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const auto size_of = [&](double squares) {
      return static_cast<float>(std::sqrt(squares / count));
    };
    const float size = weight_squares ? greatest(size_of(*weight_squares), least_size) : 1;
    const float rate = step * size, decay = shrink + rate * weight_decay,
                clipped = rate / greatest(size_of(*step_squares) / threshold, 1);
    const auto of = roots.of_row(tile.row);
    const float* cols = roots.cols + tile.begin;
    if (momentum.data)
      team.update(
          out.at(tile), tile.count,
          [=, b = beta1](auto& w, auto& m, auto g, auto col) {
            m = b * m + (1 - b) * (clipped * of(g, col));
            w = w - (m + decay * w);
            return w;
          },
          master.at(tile), momentum.at(tile), gradient.at(tile), cols);
    else
      team.update(
          out.at(tile), tile.count,
          [=](auto& w, auto g, auto col) {
            w = w - (clipped * of(g, col) + decay * w);
            return w;
          },
          master.at(tile), gradient.at(tile), cols);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void AddSquares::run(auto launch, const Checker& check) const {
  check.f32("gradient", gradient, gradient.rows, gradient.cols);
  check.f32("cols", cols, 1, gradient.cols);
  if (rows.data) check.f32("rows", rows, 1, gradient.rows);
  if (scale.data) check.f32("scale", scale, 1, 1);
  const auto* factor = static_cast<const float*>(scale.data);
  if (rows.data)
    launch.rows(
        {gradient.rows, gradient.cols},
        rowwise::RowSquares{address<float>(rows), gradient, width(gradient), factor, row_share});
  launch.columns({gradient.rows, gradient.cols}, std::array{address<float>(cols)},
                 [&](const auto& blocks) {
                   return rowwise::ColumnPartials<1, rowwise::SquareTerm, Matrix<const float>>{
                       blocks, gradient.rows, {factor, col_share}, {gradient}};
                 });
}

/// The moment of a part of the shape of `gradient`, for kernels.
inline rowwise::FactoredRoots roots_of(const Checker& check, const FactoredMoment& moment,
                                       const View& gradient, const View& scale) {
  check.f32("gradient", gradient, gradient.rows, gradient.cols);
  check.f32("cols", moment.cols, 1, gradient.cols);
  if (moment.rows.data) {
    check.f32("rows", moment.rows, 1, gradient.rows);
    check.typed("sum", moment.sum, DType::f64, 1, 1);
  }
  if (scale.data) check.f32("scale", scale, 1, 1);
  return {static_cast<const float*>(moment.rows.data),
          address<const float>(moment.cols),
          static_cast<const double*>(moment.sum.data),
          static_cast<const float*>(scale.data),
          moment.count,
          moment.added,
          moment.lowest};
}

void AdafactorSquares::run(auto launch, const Checker& check) const {
  const rowwise::FactoredRoots roots = roots_of(check, moment, gradient, scale);
  check.typed("out", out, DType::f64, 1, 1);
  launch.reduce(
      gradient.rows, gradient.cols, address<double>(out),
      [&](double* partial) {
        return rowwise::AdafactorSquaresPartials{partial, gradient, roots};
      },
      rowwise::Added{});
}

void Adafactor::run(auto launch, const Checker& check) const {
  const rowwise::FactoredRoots roots = roots_of(check, moment, gradient, scale);
  check.f32("master", master, gradient.rows, gradient.cols);
  check.values("out", out, gradient.rows, gradient.cols);
  check.typed("step_squares", step_squares, DType::f64, 1, 1);
  if (weight_squares.data) check.typed("weight_squares", weight_squares, DType::f64, 1, 1);
  rowwise::Matrix<float> mean;
  if (momentum.data) {
    check.f32("momentum", momentum, gradient.rows, gradient.cols);
    mean = momentum;
  }
  with_type(out.dtype, [&]<typename Out>(Out) {
    launch.tiles(gradient.rows, gradient.cols,
                 rowwise::AdafactorKernel<Out>{
                     out, master, gradient, mean, roots, address<const double>(step_squares),
                     static_cast<const double*>(weight_squares.data), count, step, least_size,
                     threshold, beta1, shrink, weight_decay});
  });
}

}  // namespace axonn::ops
