#include "tests/support/reference.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace axonn::reference {

Matrix transpose(const Matrix& a) {
  Matrix out(a.cols, a.rows);
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t c = 0; c < a.cols; ++c) out(c, r) = a(r, c);
  return out;
}

Matrix matmul(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.cols);
  for (std::int64_t m = 0; m < a.rows; ++m)
    for (std::int64_t k = 0; k < a.cols; ++k)
      for (std::int64_t n = 0; n < b.cols; ++n) out(m, n) += a(m, k) * b(k, n);
  return out;
}

namespace {

struct Moments {
  double mean, rstd;
};

Moments moments_of(const Matrix& inp, std::int64_t row, double eps) {
  double mean = 0, variance = 0;
  for (std::int64_t c = 0; c < inp.cols; ++c) mean += inp(row, c) / inp.cols;
  for (std::int64_t c = 0; c < inp.cols; ++c)
    variance += (inp(row, c) - mean) * (inp(row, c) - mean) / inp.cols;
  return {mean, 1 / std::sqrt(variance + eps)};
}

}  // namespace

Matrix layer_norm(const Matrix& inp, const Matrix& weight, const Matrix& bias, double eps) {
  Matrix out(inp.rows, inp.cols);
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    const auto [mean, rstd] = moments_of(inp, r, eps);
    for (std::int64_t c = 0; c < inp.cols; ++c)
      out(r, c) = (inp(r, c) - mean) * rstd * weight(0, c) + bias(0, c);
  }
  return out;
}

LayerNormGradients layer_norm_backward(const Matrix& d_out, const Matrix& inp, const Matrix& weight,
                                       double eps) {
  const std::int64_t C = inp.cols;
  LayerNormGradients d{Matrix(inp.rows, C), Matrix(1, C), Matrix(1, C)};
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    const auto [mean, rstd] = moments_of(inp, r, eps);
    const auto xhat = [&](std::int64_t c) { return (inp(r, c) - mean) * rstd; };
    double g_mean = 0, g_xhat_mean = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const double g = d_out(r, c) * weight(0, c);
      g_mean += g / C;
      g_xhat_mean += g * xhat(c) / C;
      d.d_weight(0, c) += d_out(r, c) * xhat(c);
      d.d_bias(0, c) += d_out(r, c);
    }
    for (std::int64_t c = 0; c < C; ++c)
      d.d_inp(r, c) = rstd * (d_out(r, c) * weight(0, c) - g_mean - xhat(c) * g_xhat_mean);
  }
  return d;
}

Matrix rms_norm(const Matrix& inp, const Matrix& weight, double eps) {
  Matrix out(inp.rows, inp.cols);
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    double square = 0;
    for (std::int64_t c = 0; c < inp.cols; ++c) square += inp(r, c) * inp(r, c) / inp.cols;
    for (std::int64_t c = 0; c < inp.cols; ++c)
      out(r, c) = inp(r, c) / std::sqrt(square + eps) * weight(0, c);
  }
  return out;
}

RmsNormGradients rms_norm_backward(const Matrix& d_out, const Matrix& inp, const Matrix& weight,
                                   double eps) {
  const std::int64_t C = inp.cols;
  RmsNormGradients d{Matrix(inp.rows, C), Matrix(1, C)};
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    double square = 0, mean = 0;
    for (std::int64_t c = 0; c < C; ++c) square += inp(r, c) * inp(r, c) / C;
    const double rstd = 1 / std::sqrt(square + eps);
    for (std::int64_t c = 0; c < C; ++c) {
      mean += d_out(r, c) * weight(0, c) * inp(r, c) * rstd / C;
      d.d_weight(0, c) += d_out(r, c) * inp(r, c) * rstd;
    }
    for (std::int64_t c = 0; c < C; ++c)
      d.d_inp(r, c) = rstd * (d_out(r, c) * weight(0, c) - inp(r, c) * rstd * mean);
  }
  return d;
}

Matrix rotary(const Matrix& inp, std::int64_t positions, const std::vector<double>& frequencies,
              double direction) {
  Matrix out(inp.rows, inp.cols);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t r = 0; r < inp.rows; ++r)
    for (std::int64_t head = 0; head < inp.cols; head += 2 * half)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = direction * static_cast<double>(r % positions) * frequencies[i];
        const double a = inp(r, head + i), b = inp(r, head + half + i);
        out(r, head + i) = a * std::cos(angle) - b * std::sin(angle);
        out(r, head + half + i) = b * std::cos(angle) + a * std::sin(angle);
      }
  return out;
}

Matrix swiglu(const Matrix& inp) {
  Matrix out(inp.rows, inp.cols / 2);
  for (std::int64_t r = 0; r < out.rows; ++r)
    for (std::int64_t c = 0; c < out.cols; ++c)
      out(r, c) = inp(r, c) / (1 + std::exp(-inp(r, c))) * inp(r, out.cols + c);
  return out;
}

Matrix swiglu_backward(const Matrix& d_out, const Matrix& inp) {
  Matrix d(inp.rows, inp.cols);
  for (std::int64_t r = 0; r < d_out.rows; ++r)
    for (std::int64_t c = 0; c < d_out.cols; ++c) {
      const double gate = inp(r, c), up = inp(r, d_out.cols + c), s = 1 / (1 + std::exp(-gate));
      d(r, c) = d_out(r, c) * up * (s + gate * s * (1 - s));
      d(r, d_out.cols + c) = d_out(r, c) * gate * s;
    }
  return d;
}

double xielu(double x, double p, double n) {
  const double ap = std::log1p(std::exp(p)), an = 0.5 + std::log1p(std::exp(n));
  return x > 0 ? ap * x * x + 0.5 * x : an * (std::expm1(x) - x) + 0.5 * x;
}

XieluSlopes xielu_slopes(double x, double p, double n) {
  const double ap = std::log1p(std::exp(p)), an = 0.5 + std::log1p(std::exp(n));
  const double by_p = 1 / (1 + std::exp(-p)), by_n = 1 / (1 + std::exp(-n));
  if (x > 0) return {2 * ap * x + 0.5, by_p * x * x, 0};
  return {an * std::expm1(x) + 0.5, 0, by_n * (std::expm1(x) - x)};
}

double gelu(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), tanh = std::tanh(u);
  const double du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * du;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

Matrix softmax(const Matrix& inp) {
  Matrix out = inp;
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    double most = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t c = 0; c < inp.cols; ++c) most = std::max(most, inp(r, c));
    for (std::int64_t c = 0; c < inp.cols; ++c) total += std::exp(inp(r, c) - most);
    for (std::int64_t c = 0; c < inp.cols; ++c) out(r, c) = std::exp(inp(r, c) - most) / total;
  }
  return out;
}

Matrix softmax_backward(const Matrix& d_out, const Matrix& inp) {
  Matrix d = softmax(inp);
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    double dot = 0;
    for (std::int64_t c = 0; c < inp.cols; ++c) dot += d_out(r, c) * d(r, c);
    for (std::int64_t c = 0; c < inp.cols; ++c) d(r, c) *= d_out(r, c) - dot;
  }
  return d;
}

namespace {

/// A row of q and a head, with the rows of k and the columns that belong to them.
struct Query {
  std::int64_t row, head;
  std::int64_t first, own;  // rows of k: the first of the sequence, that of the query's position
  std::int64_t q_column, k_column;
};

/// Calls f(query) for every query.
template <typename F>
void for_each_query(const Matrix& q, const Matrix& k, const AttentionShape& s, F f) {
  for (std::int64_t row = 0; row < q.rows; ++row)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t own = s.own_key(row, k.rows);
      f(Query{row, h, own - own % s.positions, own, h * s.head_dim,
              (s.first_query + h) / s.group * s.head_dim});
    }
}

/// The probabilities of the keys from `first` to `own`, the log of the sum that they were divided
/// by, and the scores, capped.
struct Softmax {
  std::vector<double> p;
  double lse;
  std::vector<double> scores = {};
};
Softmax softmax(const Matrix& q, const Matrix& k, const AttentionShape& shape, const Query& at) {
  const auto [row, head, first, own, q_column, k_column] = at;
  Softmax result{std::vector<double>(own - first + 1), 0};
  for (std::int64_t t = first; t <= own; ++t)
    for (std::int64_t d = 0; d < shape.head_dim; ++d)
      result.p[t - first] += shape.scale * q(row, q_column + d) * k(t, k_column + d);
  for (double& score : result.p)
    if (shape.cap > 0) score = shape.cap * std::tanh(score / shape.cap);
  result.scores = result.p;
  for (std::int64_t t = first; t <= own; ++t)
    if (!shape.sees(row, own, t)) result.p[t - first] = -std::numeric_limits<double>::infinity();
  const double most = *std::ranges::max_element(result.p);
  double sum = 0;
  for (double& p : result.p) sum += p = std::exp(p - most);
  for (double& p : result.p) p /= sum;
  result.lse = most + std::log(sum);
  return result;
}

}  // namespace

AttentionResult attention(const Matrix& q, const Matrix& k, const Matrix& v,
                          const AttentionShape& shape) {
  AttentionResult result{Matrix(q.rows, q.cols), Matrix(q.rows, shape.heads)};
  for_each_query(q, k, shape, [&](const Query& at) {
    const auto [row, head, first, own, q_column, k_column] = at;
    const Softmax s = softmax(q, k, shape, at);
    result.lse(row, head) = s.lse;
    for (std::int64_t t = first; t <= own; ++t)
      for (std::int64_t d = 0; d < shape.head_dim; ++d)
        result.out(row, q_column + d) += s.p[t - first] * v(t, k_column + d);
  });
  return result;
}

AttentionGradients attention_backward(const Matrix& d_out, const Matrix& q, const Matrix& k,
                                      const Matrix& v, const AttentionShape& shape) {
  AttentionGradients g{Matrix(q.rows, q.cols), Matrix(k.rows, k.cols), Matrix(k.rows, k.cols)};
  for_each_query(q, k, shape, [&](const Query& at) {
    const auto [row, head, first, own, q_column, k_column] = at;
    const Softmax s = softmax(q, k, shape, at);
    std::vector<double> d_p(s.p.size());
    double mean = 0;
    for (std::int64_t t = first; t <= own; ++t) {
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        d_p[t - first] += d_out(row, q_column + d) * v(t, k_column + d);
        g.d_v(t, k_column + d) += s.p[t - first] * d_out(row, q_column + d);
      }
      mean += s.p[t - first] * d_p[t - first];
    }
    for (std::int64_t t = first; t <= own; ++t) {
      const double slope = shape.cap > 0 ? 1 - std::pow(s.scores[t - first] / shape.cap, 2) : 1;
      const double d_score = shape.scale * slope * s.p[t - first] * (d_p[t - first] - mean);
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        g.d_q(row, q_column + d) += d_score * k(t, k_column + d);
        g.d_k(t, k_column + d) += d_score * q(row, q_column + d);
      }
    }
  });
  return g;
}

namespace {

double log_sum_exp(const Matrix& logits, std::int64_t row) {
  double most = logits(row, 0), sum = 0;
  for (std::int64_t c = 0; c < logits.cols; ++c) most = std::max(most, logits(row, c));
  for (std::int64_t c = 0; c < logits.cols; ++c) sum += std::exp(logits(row, c) - most);
  return most + std::log(sum);
}

}  // namespace

Matrix cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& targets) {
  Matrix loss(logits.rows, 1);
  for (std::int64_t r = 0; r < logits.rows; ++r)
    if (targets[r] >= 0) loss(r, 0) = log_sum_exp(logits, r) - logits(r, targets[r]);
  return loss;
}

Matrix squared_log_sums(const Matrix& logits, const std::vector<std::int32_t>& targets) {
  Matrix squares(logits.rows, 1);
  for (std::int64_t r = 0; r < logits.rows; ++r)
    if (targets[r] >= 0) squares(r, 0) = std::pow(log_sum_exp(logits, r), 2);
  return squares;
}

Matrix cross_entropy_backward(const Matrix& logits, const std::vector<std::int32_t>& targets,
                              double z) {
  Matrix d(logits.rows, logits.cols);
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    if (targets[r] < 0) continue;
    const double lse = log_sum_exp(logits, r);
    for (std::int64_t c = 0; c < logits.cols; ++c)
      d(r, c) = std::exp(logits(r, c) - lse) * (1 + 2 * z * lse) - (c == targets[r] ? 1 : 0);
  }
  return d;
}

namespace {

/// The k numbers i of the largest value(i), i below n, ascending; ties to the lower number. NaN is
/// less than all numbers.
std::vector<std::int32_t> top(std::int64_t k, std::int64_t n, const auto& value) {
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return value(a) > value(b) || (std::isnan(value(b)) && !std::isnan(value(a)));
  });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

}  // namespace

Routing route(const Matrix& logits, const Router& router) {
  const std::int64_t R = logits.rows, E = logits.cols, k = router.k;
  Routing out{router.chosen, Matrix(R, k), softmax(logits), Matrix(R, 1)};
  for (std::int64_t r = 0; r < R; ++r) {
    out.log_sums(r, 0) = log_sum_exp(logits, r);
    for (std::int64_t i = 0; i < E && router.sigmoid; ++i)
      out.scores(r, i) = 1 / (1 + std::exp(-logits(r, i)));
    if (router.chosen.empty()) {
      const auto score = [&](std::int64_t i) {
        return out.scores(r, i) + (router.bias.empty() ? 0 : router.bias[i]);
      };
      const std::int64_t each = E / router.groups;
      const auto kept = top(router.kept_groups, router.groups, [&](std::int32_t group) {
        std::vector<double> all;
        for (std::int64_t i = group * each; i < (group + 1) * each; ++i) all.push_back(score(i));
        std::ranges::sort(all, std::greater());
        return all[0] + (each > 1 && router.group_best > 1 ? all[1] : 0);
      });
      const auto ids = top(k, E, [&](std::int32_t i) {
        const bool counts = std::ranges::find(kept, std::int32_t(i / each)) != kept.end();
        return counts ? score(i) : -std::numeric_limits<double>::infinity();
      });
      out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    }
    double sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += out.scores(r, out.ids[r * k + j]);
    for (std::int64_t j = 0; j < k; ++j)
      out.weights(r, j) = router.scale * out.scores(r, out.ids[r * k + j]) /
                          (router.normalise ? std::max(sum, 1e-20) : 1);
  }
  return out;
}

Matrix route_backward(const Routing& d_out, const Matrix& logits, const Router& router) {
  const std::int64_t R = logits.rows, E = logits.cols, k = router.k;
  const Routing made = route(logits, router);
  const Matrix p = softmax(logits);
  Matrix d_scores = d_out.scores, d(R, E);
  for (std::int64_t r = 0; r < R; ++r) {
    double sum = 0, mean = 0, dot = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      sum += made.scores(r, made.ids[r * k + j]);
      mean += made.weights(r, j) * d_out.weights(r, j) / router.scale;
    }
    for (std::int64_t j = 0; j < k; ++j)
      d_scores(r, made.ids[r * k + j]) +=
          router.normalise ? (d_out.weights(r, j) - mean) * router.scale / std::max(sum, 1e-20)
                           : router.scale * d_out.weights(r, j);
    for (std::int64_t i = 0; i < E; ++i) dot += made.scores(r, i) * d_scores(r, i);
    for (std::int64_t i = 0; i < E; ++i) {
      const double s = made.scores(r, i);
      d(r, i) = router.sigmoid ? s * (1 - s) * d_scores(r, i) : s * (d_scores(r, i) - dot);
      d(r, i) += d_out.log_sums(r, 0) * p(r, i);
    }
  }
  return d;
}

void adamw(double& weight, double& first, double& second, double gradient, const AdamW& o) {
  first = o.beta1 * first + (1 - o.beta1) * gradient;
  second = o.beta2 * second + (1 - o.beta2) * gradient * gradient;
  const double first_hat = first / (1 - std::pow(o.beta1, o.step));
  const double second_hat = second / (1 - std::pow(o.beta2, o.step));
  weight -= o.lr * (first_hat / (std::sqrt(second_hat) + o.eps) + o.weight_decay * weight);
}

void ademamix(double& weight, double& first, double& slow, double& second, double gradient,
              const AdEMAMix& options) {
  const AdamW& o = options.adamw;
  first = o.beta1 * first + (1 - o.beta1) * gradient;
  slow = options.beta3 * slow + (1 - options.beta3) * gradient;
  second = o.beta2 * second + (1 - o.beta2) * gradient * gradient;
  const double mean = first / (1 - std::pow(o.beta1, o.step)) + options.alpha * slow;
  const double root = std::sqrt(second) / std::sqrt(1 - std::pow(o.beta2, o.step));
  weight -= o.lr * (mean / (root + o.eps) + o.weight_decay * weight);
}

Matrix orthogonalised(const Matrix& u, const std::vector<std::array<double, 3>>& steps) {
  const bool tall = u.rows > u.cols;
  Matrix x = tall ? transpose(u) : u;
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::sqrt(squares) + 1e-7;
  for (const auto& [a, b, c] : steps) {
    const Matrix gram = matmul(x, transpose(x)), square = matmul(gram, gram);
    Matrix polynomial(gram.rows, gram.cols);
    for (std::size_t i = 0; i < gram.values.size(); ++i)
      polynomial.values[i] = b * gram.values[i] + c * square.values[i];
    const Matrix product = matmul(polynomial, x);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = a * x.values[i] + product.values[i];
  }
  return tall ? transpose(x) : x;
}

Matrix finite_differences(const Matrix& x, const std::function<double(const Matrix&)>& loss) {
  constexpr double kStep = 1e-5;  // errors: truncation step² = 1e-10, rounding 1e-16/step = 1e-11
  Matrix gradient(x.rows, x.cols), moved = x;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    moved.values[i] = x.values[i] + kStep;
    const double above = loss(moved);
    moved.values[i] = x.values[i] - kStep;
    gradient.values[i] = (above - loss(moved)) / (2 * kStep);
    moved.values[i] = x.values[i];
  }
  return gradient;
}

}  // namespace axonn::reference
