#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

/// Every operation as plain loops in double: the reference for the tests, and a good first reading.
/// Letters as in docs: R rows, C columns, V vocabulary, T positions of a sequence, D width of a
/// head.
namespace axonn::reference {

/// Row-major, (rows, cols).
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c, double value = 0)
      : rows(r), cols(c), values(r * c, value) {}
  double& operator()(std::int64_t r, std::int64_t c) { return values[r * cols + c]; }
  double operator()(std::int64_t r, std::int64_t c) const { return values[r * cols + c]; }
};

/// Parameters or their gradients by Hugging Face name: matrices (out, in), vectors (1, n).
using Weights = std::map<std::string, Matrix>;

Matrix transpose(const Matrix& a);                // (C, R)
Matrix matmul(const Matrix& a, const Matrix& b);  // (M, K) · (K, N)

/// out = (inp - mean) / sqrt(variance + eps) · weight + bias, over each row.
Matrix layer_norm(const Matrix& inp, const Matrix& weight, const Matrix& bias, double eps);

struct LayerNormGradients {
  Matrix d_inp;             // (R, C)
  Matrix d_weight, d_bias;  // (1, C)
};
LayerNormGradients layer_norm_backward(const Matrix& d_out, const Matrix& inp, const Matrix& weight,
                                       double eps);

/// out = inp / sqrt(mean of inp² + eps) · weight, over each row.
Matrix rms_norm(const Matrix& inp, const Matrix& weight, double eps);

struct RmsNormGradients {
  Matrix d_inp;     // (R, C)
  Matrix d_weight;  // (1, C)
};
RmsNormGradients rms_norm_backward(const Matrix& d_out, const Matrix& inp, const Matrix& weight,
                                   double eps);

/// Rotates the pairs (i, i + D/2) of each head's D columns by the angles (r % T) · frequency[i].
/// `direction` -1 rotates back.
Matrix rotary(const Matrix& inp, std::int64_t positions, const std::vector<double>& frequencies,
              double direction = 1);

/// silu(gate) · up, where a row of inp holds gate and then up.
Matrix swiglu(const Matrix& inp);
Matrix swiglu_backward(const Matrix& d_out, const Matrix& inp);

/// x > 0: ap x² + x/2; else an (expm1(x) - x) + x/2; ap = log(1 + e^p) and
/// an = 1/2 + log(1 + e^n).
double xielu(double x, double p, double n);
/// Its derivatives by x, p and n.
struct XieluSlopes {
  double x, p, n;
};
XieluSlopes xielu_slopes(double x, double p, double n);

/// x/2 · (1 + tanh(sqrt(2/pi) · (x + 0.044715 · x³))).
double gelu(double x);
double gelu_slope(double x);

/// x / (1 + e^-x).
double silu(double x);
double silu_slope(double x);

/// Of each row.
Matrix softmax(const Matrix& inp);
Matrix softmax_backward(const Matrix& d_out, const Matrix& inp);

struct AttentionShape {
  std::int64_t positions, heads, kv_heads, head_dim;
  std::int64_t group = 1, first_query = 0;  // query head j uses kv head (first_query + j) / group
  double scale = 1;
  std::int64_t window = 0;  // number of last keys that a query sees, with its own; 0: no limit
  std::vector<std::int32_t> starts = {};  // by row: the first position of its sequence that it sees
  // For each 64 rows of q the 64 positions of its sequence at which they lie; empty: all, in order.
  std::vector<std::int32_t> query_blocks = {};
  double cap = 0;       // scaled scores s become cap · tanh(s / cap); 0: they stay
  bool chunks = false;  // positions are in chunks of `window`, a query sees those of its own

  /// The row of k of the position of row `query` of q; `keys` is the number of rows of k.
  std::int64_t own_key(std::int64_t query, std::int64_t keys) const {
    if (query_blocks.empty()) return query;
    const std::int64_t block = query / 64, each = std::ssize(query_blocks) * positions / keys;
    return block / each * positions + query_blocks[block] * 64 + query % 64;
  }
  /// Whether row `query` of q, whose own key is at row `own` of k, sees the key at row `key`, which
  /// is not after it and is in the same sequence.
  bool sees(std::int64_t query, std::int64_t own, std::int64_t key) const {
    if (chunks && own % positions / window != key % positions / window) return false;
    return (window == 0 || own - key < window) &&
           (starts.empty() || key % positions >= starts[query]);
  }
};

struct AttentionResult {
  Matrix out;  // (B·Tq, heads·D)
  Matrix lse;  // (B·Tq, heads), log of the sum of exp of the scaled scores
};
/// Causal attention: position t sees positions 0 to t of its own sequence, limited to the last
/// `window` and to those from its start on.
AttentionResult attention(const Matrix& q, const Matrix& k, const Matrix& v,
                          const AttentionShape& shape);

struct AttentionGradients {
  Matrix d_q, d_k, d_v;
};
AttentionGradients attention_backward(const Matrix& d_out, const Matrix& q, const Matrix& k,
                                      const Matrix& v, const AttentionShape& shape);

/// (R, 1): log(sum of exp(logits)) - logits[target] of each row, or 0 if the target is negative.
Matrix cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& targets);
/// (R, 1): the square of log(sum of exp(logits)) of each row, or 0 if the target is negative.
Matrix squared_log_sums(const Matrix& logits, const std::vector<std::int32_t>& targets);
/// The gradient of the sum of cross_entropy + z squared_log_sums: (R, V), with s = log(sum of
/// exp(logits)), softmax(logits) (1 + 2 z s) - one_hot(target) of each row, or 0 if the target is
/// negative.
Matrix cross_entropy_backward(const Matrix& logits, const std::vector<std::int32_t>& targets,
                              double z = 0);

/// How a router chooses k of E experts for each row: see ops::Route.
struct Router {
  std::int64_t k = 1;
  bool sigmoid = false, normalise = false;
  double scale = 1;
  std::int64_t groups = 1, kept_groups = 1;  // equal ones, of which the best ones' experts count
  std::int64_t group_best = 2;               // by the sum of so many best scores
  std::vector<double> bias = {};             // (E), added to the scores for the choice; empty: 0
  std::vector<std::int32_t> chosen = {};     // (R · k): a recorded choice; empty: made here
};
struct Routing {
  std::vector<std::int32_t> ids;     // (R · k): k ascending numbers of experts of each row
  Matrix weights, scores, log_sums;  // (R, k), (R, E), (R, 1)
};
Routing route(const Matrix& logits, const Router& router);
/// The gradient of the logits (R, E) for gradients of the Routing's weights, scores and log_sums.
Matrix route_backward(const Routing& d_out, const Matrix& logits, const Router& router);

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;
};
/// Updates one element: its weight and its first and second moments.
void adamw(double& weight, double& first, double& second, double gradient, const AdamW& options);

struct AdEMAMix {
  AdamW adamw;
  double beta3, alpha;  // of this step
};
/// The same with a slow mean of gradients.
void ademamix(double& weight, double& first, double& slow, double& second, double gradient,
              const AdEMAMix& options);

/// The Newton-Schulz steps of Muon on u over its norm: with X of at most as many rows as columns,
/// A = X Xᵀ, X = a X + (b A + c A²) X for each (a, b, c).
Matrix orthogonalised(const Matrix& u, const std::vector<std::array<double, 3>>& steps);

/// The gradient d loss / d x by central differences.
Matrix finite_differences(const Matrix& x, const std::function<double(const Matrix&)>& loss);

}  // namespace axonn::reference
