#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// out = xhat · weight + bias, xhat = (inp - mean) · rstd, rstd = 1 / sqrt(variance + eps). One team
// per row. A row may be a piece of a wider one: then the moments of all pieces are combined first.
//
// Bound by memory: each kernel reads and writes its (R, C) arguments once, (2 to 4) · R · C ·
// sizeof(T) bytes. Sums are float whatever T is.
// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

/// Stores two results of a row.
AXONN_DEVICE void store_pair(const auto& team, float* to, Pair<float> results) {
  team.once([&] {
    to[0] = results.first;
    to[1] = results.second;
  });
}

/// out[row] = mean and sum of squared deviations.
template <typename T>
struct RowMomentsKernel {
  Matrix<float> out;    // (R, 2)
  Matrix<const T> inp;  // (R, C)
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    store_pair(team, out.row(row), team.moments(C, inp.row(row)));
  }
};

/// out[row] = a[row] + b[row], and the moments of out[row] as it is stored, rounded to T.
/// Bound by memory: 3 · R · C · sizeof(T) bytes.
template <typename T>
struct AddMomentsKernel {
  Matrix<T> out;          // (R, C)
  Matrix<float> moments;  // (R, 2)
  Matrix<const T> a, b;   // (R, C)
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const auto both = team.map_moments(
        out.row(row), C, [](auto x, auto y) { return x + y; }, a.row(row), b.row(row));
    store_pair(team, moments.row(row), both);
  }
};

/// out[row] = mean and rstd over all pieces, each of `count` elements. The squared deviations of a
/// and b together sum up to M2a + M2b + (mean_b - mean_a)² · na · nb / (na + nb).
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
/// sample variances", 1979.
struct CombineMomentsKernel {
  Matrix<float> out;            // (R, 2)
  Matrix<const float> moments;  // (pieces · R, 2)
  std::int64_t R, pieces;
  float count, eps;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
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
struct LayerNormKernel {
  Matrix<T> out;              // (R, C)
  Matrix<const T> inp;        // (R, C)
  const W* weight;            // (C)
  const W* bias;              // (C) or null
  Matrix<const float> stats;  // (R, 2) mean, rstd
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    apply(team, row, stats.row(row)[0], stats.row(row)[1]);
  }
  AXONN_DEVICE void apply(const auto& team, std::int64_t row, float mean, float rstd) const {
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

/// LayerNormKernel of a whole row, with its statistics.
template <typename T, typename W>
struct NormForwardKernel {
  LayerNormKernel<T, W> norm;   // reads `stats`
  Matrix<float> stats;          // (R, 2)
  Matrix<const float> moments;  // (R, 2) or absent
  float eps;
  bool about_zero;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const auto count = static_cast<float>(norm.C);
    const Pair<float> of_row = moments.data ? Pair<float>{moments.row(row)[0], moments.row(row)[1]}
                                            : Pair<float>(team.moments(norm.C, norm.inp.row(row)));
    const float mean = of_row.first,
                squares = about_zero ? of_row.second + count * mean * mean : of_row.second,
                rstd = 1 / std::sqrt(squares / count + eps), about = about_zero ? 0 : mean;
    store_pair(team, stats.row(row), {about, rstd});
    norm.apply(team, row, about, rstd);
  }
};

/// out[row] = sums over this piece of g and g · xhat, g = d_out · weight.
template <typename T, typename W>
struct LayerNormSumsKernel {
  Matrix<float> out;           // (R, 2)
  Matrix<const T> d_out, inp;  // (R, C)
  const W* weight;             // (C)
  Matrix<const float> stats;   // (R, 2)
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const float mean = stats.row(row)[0], rstd = stats.row(row)[1];
    const T *dy = d_out.row(row), *x = inp.row(row);
    const auto total = team.sum_two(
        C,
        [=](auto d, auto w, auto v) {
          const auto g = d * w;
          return pair(g, g * (v - mean));
        },
        dy, weight, x);
    store_pair(team, out.row(row), {total.first, total.second * rstd});
  }
};

/// d_inp = rstd · (g - mean(g) - xhat · mean(g · xhat)) + residual, means over the whole row.
template <typename T, typename W>
struct LayerNormBackwardKernel {
  Matrix<T> d_inp;                  // (R, C)
  Matrix<const T> d_out, inp;       // (R, C)
  const W* weight;                  // (C)
  Matrix<const float> stats, sums;  // (R, 2)
  Matrix<const T> residual;         // (R, C) or absent
  int C;
  float width;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
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

/// d_inp as of LayerNormBackwardKernel for whole rows, and the sums of WeightAndBiasTerms, in one
/// pass: a team keeps a row's operands. Only GPUs have such a team (gpu/norm_backward.cuh).
template <typename T, typename W>
struct NormBackwardRows {
  Matrix<T> d_inp;             // (R, C)
  Matrix<const T> d_out, inp;  // (R, C)
  Matrix<const T> residual;    // (R, C) or absent
  const W* weight;             // (C)
  Matrix<const float> stats;   // (R, 2)
  float *d_weight, *d_bias;    // (C) or null
  std::int64_t R;
  int C;
  bool about_zero;
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

// out = xhat · weight, xhat = inp · rstd, rstd = 1 / sqrt(mean of inp² + eps): LayerNorm about zero
// instead of the mean. LayerNorm's kernels compute it, given 0 as the mean and, in backward, 0 as
// the sum of g. Here is the rest: statistics, and the norm of each head.
//
// Bound by memory, like LayerNorm. Source: Zhang and Sennrich, "Root Mean Square Layer
// Normalization", 2019.

/// out[row] = 0 and the sum of squares, from mean and sum of squared deviations of count elements.
struct MomentsAboutZeroKernel {
  Matrix<float> out;            // (R, 2)
  Matrix<const float> moments;  // (R, 2)
  float count;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
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

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const float g_x = team.sum(
        C, [](auto d, auto w, auto x) { return d * w * x; }, d_out.row(row), weight, inp.row(row));
    store_pair(team, out.row(row), {0, g_x * stats.row(row)[1]});
  }
};

/// The norm over each head's D columns, with one weight (D) for all heads.
template <typename T, typename W>
struct HeadNormKernel {
  Matrix<T> out;        // (R, h · D)
  Matrix<const T> inp;  // (R, h · D)
  const W* weight;      // (D)
  Matrix<float> rstd;   // (R, h)
  int D;
  float eps;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h) {
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
  int D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h) {
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

/// The term of a column's sum over all heads of all rows: d_out · xhat.
struct HeadWeightTerm {
  HeadRows<const float> rstd;  // (R · h, 1)

  AXONN_DEVICE auto operator()(std::int64_t row) const {
    return [scale = *rstd.row(row)](auto d, auto x) { return d * (x * scale); };
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks the operands of all LayerNorm operations: inp (R, C), weight (1, C) and stats (R, 2).
inline void check_norm(const Checker& check, const View& inp, const View& weight,
                       const View& stats) {
  check.values("inp", inp);
  check.values("weight", weight, 1, inp.cols);
  check.f32("stats", stats, inp.rows, 2);
}

void RowMoments::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.f32("out", out, inp.rows, 2);
  AXONN_CHECK(inp.cols > 0 || inp.rows == 0, "row_moments: inp is ", inp,
              ", want at least one column");
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols}, rowwise::RowMomentsKernel<T>{out, inp, width(inp)});
  });
}

void AddMoments::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.like("a", a, out);
  check.like("b", b, out);
  check.f32("moments", moments, out.rows, 2);
  AXONN_CHECK(out.cols > 0 || out.rows == 0, "add_moments: out is ", out,
              ", want at least one column");
  with_type(out.dtype, [&]<typename T>(T) {
    launch.rows({out.rows, out.cols}, rowwise::AddMomentsKernel<T>{out, moments, a, b, width(out)});
  });
}

void CombineMoments::run(auto launch, const Checker& check) const {
  check.type("moments", moments, {DType::f32});
  check.f32("out", out, out.rows, 2);
  if (out.rows == 0) return;
  const std::int64_t pieces = moments.rows / out.rows;
  check.shape("moments", moments, pieces * out.rows, 2);
  AXONN_CHECK(pieces >= 1 && count >= 1, "combine_moments: ", pieces, " pieces of ", count,
              " elements each, want at least one of both");
  launch.tiles(1, out.rows,
               rowwise::CombineMomentsKernel{out, moments, out.rows, pieces,
                                             static_cast<float>(count), eps});
}

void LayerNorm::run(auto launch, const Checker& check) const {
  check_norm(check, inp, weight, stats);
  check.like("out", out, inp);
  if (bias.data) check.like("bias", bias, weight);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({inp.rows, inp.cols},
                rowwise::LayerNormKernel<T, W>{out, inp, address<const W>(weight),
                                               address<const W>(bias), stats, width(inp)});
  });
}

void NormForward::run(auto launch, const Checker& check) const {
  check_norm(check, inp, weight, stats);
  check.like("out", out, inp);
  if (bias.data) check.like("bias", bias, weight);
  if (moments.data) check.f32("moments", moments, inp.rows, 2);
  AXONN_CHECK(inp.cols > 0 || inp.rows == 0, check.operation, ": inp is ", inp,
              ", want at least one column");
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({inp.rows, inp.cols}, rowwise::NormForwardKernel<T, W>{
                                          .norm = {out, inp, address<const W>(weight),
                                                   address<const W>(bias), stats, width(inp)},
                                          .stats = stats,
                                          .moments = moments,
                                          .eps = eps,
                                          .about_zero = about_zero});
  });
}

/// LayerNormSums or RmsNormSums.
template <template <typename, typename> typename Kernel>
void run_norm_sums(auto launch, const Checker& check, const auto& op) {
  check_norm(check, op.inp, op.weight, op.stats);
  check.like("d_out", op.d_out, op.inp);
  check.f32("out", op.out, op.inp.rows, 2);
  with_types(op.inp.dtype, op.weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({op.inp.rows, op.inp.cols},
                Kernel<T, W>{op.out, op.d_out, op.inp, address<const W>(op.weight), op.stats,
                             width(op.inp)});
  });
}

void LayerNormSums::run(auto launch, const Checker& check) const {
  run_norm_sums<rowwise::LayerNormSumsKernel>(launch, check, *this);
}

void LayerNormBackward::run(auto launch, const Checker& check) const {
  check_norm(check, inp, weight, stats);
  check.like("d_inp", d_inp, inp);
  check.like("d_out", d_out, inp);
  if (residual.data) check.like("residual", residual, inp);
  check.f32("sums", sums, inp.rows, 2);
  AXONN_CHECK(width >= inp.cols && width > 0, "layer_norm_backward: width ", width,
              " of whole rows, want at least the columns of inp ", inp);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({inp.rows, inp.cols}, rowwise::LayerNormBackwardKernel<T, W>{
                                          d_inp, d_out, inp, address<const W>(weight), stats, sums,
                                          residual, ops::width(inp), static_cast<float>(width)});
  });
}

void LayerNormWeightBackward::run(auto launch, const Checker& check) const {
  check_norm(check, inp, d_weight, stats);
  check.type("d_weight", d_weight, {DType::f32});
  check.like("d_out", d_out, inp);
  if (d_bias.data) check.like("d_bias", d_bias, d_weight);
  with_type(inp.dtype, [&]<typename T>(T) {
    const auto sum = [&]<std::size_t n, typename Term>(const std::array<float*, n>& out,
                                                       Term term) {
      using Rows = Matrix<const T>;
      launch.columns({inp.rows, inp.cols}, out, [&](const auto& blocks) {
        return rowwise::ColumnPartials<n, Term, Rows, Rows>{blocks, inp.rows, term, {d_out, inp}};
      });
    };
    if (d_bias.data)
      sum(std::array{address<float>(d_weight), address<float>(d_bias)},
          rowwise::WeightAndBiasTerms{{stats}});
    else
      sum(std::array{address<float>(d_weight)}, rowwise::WeightTerm{stats});
  });
}

void NormBackward::run(auto launch, const Checker& check) const {
  check_norm(check, inp, weight, stats);
  check.like("d_inp", d_inp, inp);
  check.like("d_out", d_out, inp);
  if (residual.data) check.like("residual", residual, inp);
  if (d_weight.data) check.f32("d_weight", d_weight, 1, inp.cols);
  if (d_bias.data) check.f32("d_bias", d_bias, 1, inp.cols);
  AXONN_CHECK(d_weight.data || !d_bias.data, check.operation, ": d_bias without d_weight");
  if (inp.count() == 0) return;
  bool done = false;
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    done = launch.norm_backward(rowwise::NormBackwardRows<T, W>{
        d_inp, d_out, inp, residual, address<const W>(weight), stats, address<float>(d_weight),
        address<float>(d_bias), inp.rows, width(inp), about_zero});
  });
  if (done) return;
  float* const memory = launch.scratch.template take<float>(2 * inp.rows);
  const View sums{memory, DType::f32, inp.rows, 2, 2, inp.memory};
  if (about_zero)
    RmsNormSums{sums, d_out, inp, weight, stats}.run(launch, check);
  else
    LayerNormSums{sums, d_out, inp, weight, stats}.run(launch, check);
  LayerNormBackward{.d_inp = d_inp,
                    .d_out = d_out,
                    .inp = inp,
                    .weight = weight,
                    .stats = stats,
                    .sums = sums,
                    .residual = residual,
                    .width = inp.cols}
      .run(launch, check);
  if (d_weight.data)
    LayerNormWeightBackward{d_weight, d_bias, d_out, inp, stats}.run(launch, check);
}

void MomentsAboutZero::run(auto launch, const Checker& check) const {
  check.f32("out", out, out.rows, 2);
  check.f32("moments", moments, out.rows, 2);
  launch.tiles(1, out.rows,
               rowwise::MomentsAboutZeroKernel{out, moments, static_cast<float>(count)});
}

void RmsNormSums::run(auto launch, const Checker& check) const {
  run_norm_sums<rowwise::RmsNormSumsKernel>(launch, check, *this);
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

void HeadNorm::run(auto launch, const Checker& check) const {
  const int heads = check_heads(check, *this);
  check.like("out", out, inp);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.heads({inp.rows, heads, weight.cols},
                 rowwise::HeadNormKernel<T, W>{out, inp, address<const W>(weight), rstd,
                                               width(weight), eps});
  });
}

void HeadNormBackward::run(auto launch, const Checker& check) const {
  const int heads = check_heads(check, forward);
  const View &inp = forward.inp, &weight = forward.weight;
  check.like("d_out", d_out, inp);
  check.like("d_inp", d_inp, inp);
  if (d_weight.data) check.f32("d_weight", d_weight, 1, weight.cols);
  const auto rstd = Matrix<const float>(forward.rstd);
  with_types(inp.dtype, weight.dtype, [&]<typename T, typename W>(T, W) {
    launch.heads({inp.rows, heads, weight.cols},
                 rowwise::HeadNormBackwardKernel<T, W>{d_inp, d_out, inp, address<const W>(weight),
                                                       rstd, width(weight)});
  });
  if (!d_weight.data || inp.count() == 0) return;
  const std::int64_t all = inp.rows * heads;
  AXONN_CHECK(all <= std::numeric_limits<std::int32_t>::max(), check.operation, ": ", all,
              " heads in all rows, want less than 2^31");
  const rowwise::ColumnWork sums{all, weight.cols, rowwise::ColumnWork::kBlock * heads};
  const rowwise::Divisor each(heads);
  with_type(inp.dtype, [&]<typename T>(T) {
    using Rows = rowwise::HeadRows<const T>;
    const auto rows_of = [&](const View& view) { return Rows{view, each, width(weight)}; };
    launch.columns(sums, std::array{address<float>(d_weight)}, [&](const auto& blocks) {
      return rowwise::ColumnPartials<1, rowwise::HeadWeightTerm, Rows, Rows>{
          blocks, all, {{rstd, each, 1}}, {rows_of(d_out), rows_of(inp)}};
    });
  });
}

}  // namespace axonn::ops
