#pragma once

#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = xhat · weight + bias, xhat = (inp - mean) · rstd, rstd = 1 / sqrt(variance + eps). One team
// per row. A row may be a piece of a wider one: then the moments of all pieces are combined first.
//
// Bound by memory: each kernel reads and writes its (R, C) arguments once, (2 to 4) · R · C ·
// sizeof(T) bytes. Sums are float whatever T is.
// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

/// out[row] = mean and sum of squared deviations.
template <typename T>
struct RowMoments {
  Matrix<float> out;    // (R, 2)
  Matrix<const T> inp;  // (R, C)
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const auto moments = team.moments(C, inp.row(row));
    team.once([&] {
      out.row(row)[0] = moments.first;
      out.row(row)[1] = moments.second;
    });
  }
};

/// out[row] = a[row] + b[row], and the moments of out[row] as it is stored, rounded to T.
/// Bound by memory: 3 · R · C · sizeof(T) bytes.
template <typename T>
struct AddMoments {
  Matrix<T> out;          // (R, C)
  Matrix<float> moments;  // (R, 2)
  Matrix<const T> a, b;   // (R, C)
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const auto both = team.map_moments(
        out.row(row), C, [](auto x, auto y) { return x + y; }, a.row(row), b.row(row));
    team.once([&] {
      moments.row(row)[0] = both.first;
      moments.row(row)[1] = both.second;
    });
  }
};

/// out[row] = mean and rstd over all pieces, each of `count` elements. The squared deviations of a
/// and b together sum up to M2a + M2b + (mean_b - mean_a)² · na · nb / (na + nb).
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
/// sample variances", 1979.
struct CombineMoments {
  Matrix<float> out;            // (R, 2)
  Matrix<const float> moments;  // (pieces · R, 2)
  std::int64_t R, pieces;
  float count, eps;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.each(tile.count, [&](int i) {
      const std::int64_t row = tile.begin + i;
      float mean = moments.row(row)[0], m2 = moments.row(row)[1];
      for (std::int64_t p = 1; p < pieces; ++p) {
        const float* piece = moments.row(p * R + row);
        const float delta = piece[0] - mean, n = count * static_cast<float>(p);
        mean += delta * (count / (n + count));
        m2 += piece[1] + delta * delta * (n * (count / (n + count)));
      }
      out.row(row)[0] = mean;
      out.row(row)[1] = 1 / std::sqrt(m2 / (count * static_cast<float>(pieces)) + eps);
    });
  }
};

template <typename T, typename W>
struct LayerNormForward {
  Matrix<T> out;              // (R, C)
  Matrix<const T> inp;        // (R, C)
  const W* weight;            // (C)
  const W* bias;              // (C) or null
  Matrix<const float> stats;  // (R, 2) mean, rstd
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const float mean = stats.row(row)[0], rstd = stats.row(row)[1];
    if (bias)
      team.map(
          out.row(row), C, [=](auto x, auto w, auto b) { return (x - mean) * rstd * w + b; },
          inp.row(row), weight, bias);
    else
      team.map(
          out.row(row), C, [=](auto x, auto w) { return (x - mean) * rstd * w; }, inp.row(row),
          weight);
  }
};

/// out[row] = sums over this piece of g and g · xhat, g = d_out · weight.
template <typename T, typename W>
struct LayerNormSums {
  Matrix<float> out;           // (R, 2)
  Matrix<const T> d_out, inp;  // (R, C)
  const W* weight;             // (C)
  Matrix<const float> stats;   // (R, 2)
  int C;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const float mean = stats.row(row)[0], rstd = stats.row(row)[1];
    const T *dy = d_out.row(row), *x = inp.row(row);
    const auto total = team.sum_two(
        C,
        [=](auto d, auto w, auto v) {
          const auto g = d * w;
          return pair(g, g * (v - mean));
        },
        dy, weight, x);
    team.once([&] {
      out.row(row)[0] = total.first;
      out.row(row)[1] = total.second * rstd;
    });
  }
};

/// d_inp = rstd · (g - mean(g) - xhat · mean(g · xhat)) + residual, means over the whole row.
template <typename T, typename W>
struct LayerNormBackward {
  Matrix<T> d_inp;                  // (R, C)
  Matrix<const T> d_out, inp;       // (R, C)
  const W* weight;                  // (C)
  Matrix<const float> stats, sums;  // (R, 2)
  Matrix<const T> residual;         // (R, C) or absent
  int C;
  float width;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const float mean = stats.row(row)[0], rstd = stats.row(row)[1];
    const float g = sums.row(row)[0] / width, slope = rstd * sums.row(row)[1] / width;
    const auto gradient = [=](auto d, auto x, auto w) {
      return rstd * (d * w - ((x - mean) * slope + g));
    };
    if (residual.data)
      team.map(
          d_inp.row(row), C, [=](auto d, auto x, auto w, auto r) { return gradient(d, x, w) + r; },
          d_out.row(row), inp.row(row), weight, residual.row(row));
    else
      team.map(d_inp.row(row), C, gradient, d_out.row(row), inp.row(row), weight);
  }
};

/// The term of a column's sum for d_weight: d_out · xhat.
struct WeightTerm {
  Matrix<const float> stats;  // (R, 2)

  AXONN_DEVICE auto operator()(std::int64_t row) const {
    return [mean = stats.row(row)[0], rstd = stats.row(row)[1]](auto d, auto x) {
      return d * ((x - mean) * rstd);
    };
  }
};

/// The terms of a column's sums for d_weight and d_bias: d_out · xhat and d_out.
struct WeightAndBiasTerms {
  WeightTerm weight;

  AXONN_DEVICE auto operator()(std::int64_t row) const {
    return [term = weight(row)](auto d, auto x) { return pair(term(d, x), d); };
  }
};

}  // namespace axonn::rowwise
