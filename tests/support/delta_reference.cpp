#include "tests/support/delta_reference.h"

#include <cmath>

namespace axonn::reference {

namespace {

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// Columns [begin, begin + count) of x.
Matrix some_columns(const Matrix& x, std::int64_t begin, std::int64_t count) {
  Matrix out(x.rows, count);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) out(r, c) = x(r, begin + c);
  return out;
}

/// x · wᵀ.
Matrix times_transposed(const Matrix& x, const Matrix& w) { return matmul(x, transpose(w)); }

/// The sum over a row's last taps of each column, and silu of it.
Matrix convolved(const Matrix& x, const Matrix& taps, std::int64_t positions) {
  Matrix out(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < taps.cols && j <= r % positions; ++j)
        sum += taps(c, taps.cols - 1 - j) * x(r - j, c);
      out(r, c) = silu(sum);
    }
  return out;
}

/// One value head of a gated delta net, before its norm: (R, V). `k` and `q` have length 1.
Matrix delta_head(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& gates,
                  std::int64_t positions) {
  Matrix out(v.rows, v.cols), state(k.cols, v.cols);
  for (std::int64_t r = 0; r < v.rows; ++r) {
    if (r % positions == 0) state = Matrix(k.cols, v.cols);
    for (double& value : state.values) value *= gates(r, 0);
    for (std::int64_t c = 0; c < v.cols; ++c) {
      double recalled = 0;
      for (std::int64_t i = 0; i < k.cols; ++i) recalled += state(i, c) * k(r, i);
      for (std::int64_t i = 0; i < k.cols; ++i) {
        state(i, c) += k(r, i) * gates(r, 1) * (v(r, c) - recalled);
        out(r, c) += state(i, c) * q(r, i);
      }
    }
  }
  return out;
}

/// Each row divided by its length and by `more`.
Matrix of_length_one(Matrix x, double more) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double sum = 1e-6;
    for (std::int64_t c = 0; c < x.cols; ++c) sum += x(r, c) * x(r, c);
    for (std::int64_t c = 0; c < x.cols; ++c) x(r, c) /= std::sqrt(sum) * more;
  }
  return x;
}

}  // namespace

Matrix delta_net(const Matrix& x, const ModelConfig& m, const Weights& weights, std::int64_t layer,
                 std::int64_t positions) {
  const std::string name = "model.layers." + std::to_string(layer) + ".linear_attn.";
  const std::int64_t K = m.delta.key_dim, V = m.delta.value_dim, keys = m.delta.key_heads * K;
  const Matrix taps = weights.at(name + "conv1d.weight");
  const auto project = [&](const std::string& which) {
    return times_transposed(x, weights.at(name + which + ".weight"));
  };
  /// Of which the taps begin at a row of all taps.
  const auto channels = [&](const std::string& which, std::int64_t first) {
    const Matrix from = project(which);
    return convolved(from, transpose(some_columns(transpose(taps), first, from.cols)), positions);
  };
  const Matrix q = channels("q_proj", 0), k = channels("k_proj", keys),
               v = channels("v_proj", 2 * keys), z = project("in_proj_z"), a = project("in_proj_a"),
               b = project("in_proj_b");
  Matrix out(x.rows, v.cols), gates(x.rows, 2);
  for (std::int64_t h = 0; h < m.delta.value_heads; ++h) {
    const double A = std::exp(weights.at(name + "A_log")(0, h)),
                 bias = weights.at(name + "dt_bias")(0, h);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      gates(r, 0) = std::exp(-A * std::log1p(std::exp(a(r, h) + bias)));
      gates(r, 1) = sigmoid_of(b(r, h));
    }
    const std::int64_t of = h * m.delta.key_heads / m.delta.value_heads;
    const Matrix head =
        rms_norm(delta_head(of_length_one(some_columns(q, of * K, K), std::sqrt(double(K))),
                            of_length_one(some_columns(k, of * K, K), 1), some_columns(v, h * V, V),
                            gates, positions),
                 weights.at(name + "norm.weight"), m.norm_eps);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < V; ++c) out(r, h * V + c) = head(r, c) * silu(z(r, h * V + c));
  }
  return times_transposed(out, weights.at(name + "out_proj.weight"));
}

}  // namespace axonn::reference
