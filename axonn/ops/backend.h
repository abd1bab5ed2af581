#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/matmul_shape.h"
#include "axonn/tensor/device.h"
#include "axonn/tensor/tensor.h"

namespace axonn {

/// out = op(a) · op(b) (+ bias) (+ out). (M, N) = (M, K) · (K, N), sums in f32.
///
/// a and b are both f32 or both bf16; bias (1, N) has their type; out has their type or is f32.
///
/// The fields below `accumulate` are the epilogue: work on the result, or on a, that some devices
/// fuse into the product. At most one of gelu, gelu_derivative_at and accumulate may be set.
struct Matmul {
  View out;  ///< (M, N)
  View a;    ///< (M, K), or (K, M) if transposed
  View b;    ///< (K, N), or (N, K) if transposed
  bool a_transposed = false;
  bool b_transposed = false;
  View bias = {};           ///< (1, N) or empty
  bool accumulate = false;  ///< out += instead of out =

  bool gelu = false;     ///< out = gelu(the product with its bias)
  View gelu_input = {};  ///< (M, N) of out's type: receives GELU's input; or empty
  /// (M, N) of out's type: out is multiplied by GELU's derivative at these values, which are the
  /// gelu_input of the forward product; or empty. Not with a bias.
  View gelu_derivative_at = {};
  /// (1, M) f32: the sum over a's K rows is added to it; or empty. In the product of a weight's
  /// gradient that sum is the gradient of the bias. a must be transposed.
  View bias_gradient = {};
};

/// Causal attention over heads, grouped key-value heads included.
///
/// Query head j uses key-value head (first_query + j) / group of k and v. Rows are sequences one
/// after another, `positions` rows each. Columns are heads one after another, `head_dim` each.
struct Attention {
  View q;                      ///< (B·T, h·D)
  View k, v;                   ///< (B·T, k·D)
  View out;                    ///< (B·T, h·D)
  View stats;                  ///< (B·T, h) f32: log of the sum of exponentials, kept for backward
  std::int64_t positions = 0;  ///< T
  std::int64_t heads = 0;      ///< h, query heads here
  std::int64_t head_dim = 0;   ///< D
  std::int64_t group = 1;      ///< query heads that share a key-value head
  std::int64_t first_query = 0;  ///< index of query head 0 within its group
  std::int64_t window = 0;       ///< keys that a query sees, its own the last; 0: all
  float scale = 1;               ///< factor of the scores, usually 1 / sqrt(D)
  /// (1, B·T) i32: the position in its sequence, 0 to its own, where each row's document begins.
  /// The row sees no key before it. Empty: 0.
  View starts = {};
};

/// The gradients of Attention; d_q, d_k and d_v are overwritten.
struct AttentionBackward {
  Attention forward;
  View d_out;     ///< (B·T, h·D)
  View d_q;       ///< (B·T, h·D)
  View d_k, d_v;  ///< (B·T, k·D)
};

/// Writes the keys, or the values, of new tokens to the key-value cache. A slot has room for
/// `entries` positions of one sequence, one head after another; position p is at entry
/// p % entries. Row r is position positions[r] of slot slots[r]; negative slots are skipped.
struct KeepHeads {
  View kept;       ///< (slots · k · entries, D)
  View inp;        ///< (R, k·D)
  View slots;      ///< (1, R) i32
  View positions;  ///< (1, R) i32
  std::int64_t entries = 0;
};

/// Attention of new tokens to the cached keys and values of their sequences, their own included:
/// row r sees its own position and those before it, which must all be in the cache, or the last
/// `window` of them. Rows of a negative slot become zero.
struct CachedAttention {
  View q;                     ///< (R, h·D)
  View keys, values;          ///< (slots · k · entries, D)
  View out;                   ///< (R, h·D)
  View slots, positions;      ///< (1, R) i32, as in KeepHeads
  std::int64_t entries = 0;   ///< positions that a slot has room for
  std::int64_t longest = 0;   ///< every position is less than this
  std::int64_t heads = 0;     ///< h, query heads here
  std::int64_t kv_heads = 0;  ///< k
  std::int64_t head_dim = 0;  ///< D; the rest as in Attention
  std::int64_t group = 1;
  std::int64_t first_query = 0;
  std::int64_t window = 0;
  float scale = 1;
};

/// The gradient of a norm on a piece of each row: C of the row's `width` columns.
struct NormBackward {
  View d_inp;   ///< (R, C)
  View d_out;   ///< (R, C)
  View inp;     ///< (R, C)
  View weight;  ///< (1, C)
  View stats;   ///< (R, 2) f32: mean, 1 / standard deviation
  View sums;    ///< (R, 2) f32: sums over the whole row of g and g · xhat, g = d_out · weight
  View residual = {};  ///< (R, C) added to d_inp, or empty
  std::int64_t width = 0;
};

/// RMSNorm of each head separately, with one weight for all: (R, h·D), h heads of D columns.
struct HeadNorm {
  View out;     ///< (R, h·D)
  View inp;     ///< (R, h·D)
  View weight;  ///< (1, D)
  View rstd;    ///< (R, h) f32: 1 / sqrt(mean of a head's squares + eps), kept for backward
  float eps = 1e-5f;
};

/// The gradients of HeadNorm; forward.out is not read.
struct HeadNormBackward {
  HeadNorm forward;
  View d_out;     ///< (R, h·D)
  View d_inp;     ///< (R, h·D)
  View d_weight;  ///< (1, D) f32, added to; or empty
};

/// Rotary position embedding: column i of a head is paired with column i + D/2.
struct RotaryEmbedding {
  View out;              ///< (R, h·D), may be inp
  View inp;              ///< (R, h·D)
  View table;            ///< (T, D) f32: cosines, then sines, of a position's D/2 angles
  bool inverse = false;  ///< rotates by the opposite angles, as the gradient needs
  View positions = {};   ///< (1, R) i32, below T; or empty: row r has position r % T
};

/// Rows of a table of tokens, plus rows of learned positions if there are any.
struct TokenEmbedding {
  View out;    ///< (R, C) T
  View ids;    ///< (1, R) i32
  View table;  ///< (V, C) T: rows of ids [first, first + V); other ids give zeros
  std::int64_t first = 0;
  View learned = {};    ///< (P, C) T, added; or empty
  View positions = {};  ///< (1, R) i32, below P; or empty: row r has position r % P
};

/// Sets elements of a piece of a value to 0 at random. The choice depends only on the key and on
/// the element's place in the whole value.
struct Dropout {
  View out;                    ///< (R, C) T, may be inp
  View inp;                    ///< (R, C) T
  float scale = 1;             ///< kept elements are multiplied by scale / (1 - probability)
  float probability = 0;       ///< that an element is set to 0
  std::uint64_t key = 0;       ///< a different key makes a different choice
  std::int64_t first_row = 0;  ///< of element (0, 0) in the whole value
  std::int64_t first_col = 0;
};

/// This rank's piece of the vocabulary: its logits are those of tokens [first, first + valid). The
/// view's columns from `valid` on are padding.
struct VocabularyPiece {
  std::int64_t first = 0;
  std::int64_t valid = 0;
};

/// The gradient of a piece of the logits.
struct LogitsBackward {
  View d_logits;  ///< (R, V) T
  View logits;    ///< (R, V) T, may differ in type from d_logits
  View lse;       ///< (R, 1) f32: log of the sum of exponentials over all pieces
  View targets;   ///< (1, R) i32
  VocabularyPiece piece;
  float scale = 1;
};

/// One step of AdamW (Loshchilov and Hutter, 2019) on a flat piece of parameters.
struct AdamWUpdate {
  View master;         ///< (1, n) f32
  View first, second;  ///< (1, n) f32, the moments
  View gradient;       ///< (1, n) f32
  View out;            ///< (1, n) the compute copy, f32 or bf16
  View scale;          ///< (1, 1) f32 on the device: the gradient's factor (clipping)
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  std::int64_t step = 1;     ///< counted from 1, for the bias correction
  std::int64_t decayed = 0;  ///< weight decay applies to the first `decayed` elements only
};

/// One step of gradient descent with decoupled decay on a flat piece of parameters.
struct SgdUpdate {
  View master, gradient, out, scale;  ///< as in AdamWUpdate
  float lr = 0, weight_decay = 0;
  std::int64_t decayed = 0;
};

/// The arithmetic of one rank on its device. Every operation is enqueued on device().compute();
/// none makes the host wait for a GPU. A View documented as T is f32 or bf16.
///
/// Gradients of parameters are f32 and are added to (+=); everything else is overwritten (=). Every
/// sum has a fixed order, whatever the number of threads, unless CudaOptions::deterministic is off.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device& device() = 0;
  virtual std::string name() const = 0;

  /// Names the layer that the following operations belong to, for traces.
  virtual void mark(std::string_view layer) { (void)layer; }

  /// Remarks for the user on how operations were computed since the last call, such as a library
  /// that does not support their operands. One line each; no line is ever repeated.
  virtual std::vector<std::string> take_remarks() { return {}; }

  /// Computes a product and its epilogue: by product() alone if fuses() is true. Otherwise by
  /// product(), then gelu(), gelu_backward() and column_sum(), with the result rounded in between.
  void matmul(const Matmul& args);
  /// The device's part of matmul(): a product, with its epilogue only if fuses() is true.
  virtual void product(const Matmul& args) = 0;
  /// Whether product() also computes the epilogue of this product. Depends on its shape, the way
  /// that set_matmul_way() chose for that, types, strides and alignment.
  virtual bool fuses(const Matmul& args) {
    (void)args;
    return false;
  }
  /// Names of the ways in which this backend can compute such a product, the default first. They
  /// differ in speed and in the order of rounding, not in what the caller must provide.
  virtual std::vector<std::string> matmul_ways(const MatmulShape& shape) const = 0;
  /// Computes products of this shape in that way from now on. Returns false, and changes nothing,
  /// if there is no such way.
  virtual bool set_matmul_way(const MatmulShape& shape, std::string_view way) = 0;
  /// What the fastest way depends on besides the shape: device, threads, library and its version.
  virtual std::string matmul_device() const = 0;

  virtual void attention(const Attention& args) = 0;
  virtual void attention_backward(const AttentionBackward& args) = 0;
  virtual void keep_heads(const KeepHeads& args) = 0;
  virtual void cached_attention(const CachedAttention& args) = 0;

  /// out (R, 2) f32 = mean and sum of squared deviations of each row of inp (R, C) T.
  virtual void row_moments(View out, View inp) = 0;
  /// out (R, C) T = a + b, and moments (R, 2) f32 = row_moments of out, in one pass: the input of a
  /// norm after a residual sum. The bits are those of add, then row_moments.
  virtual void add_moments(View out, View moments, View a, View b) = 0;
  /// out (R, 2) f32 = mean and 1 / sqrt(variance + eps), from the stacked moments (pieces · R, 2)
  /// of pieces of `count` columns each, by Chan's formula in the order of the pieces.
  virtual void combine_moments(View out, View moments, std::int64_t count, float eps) = 0;
  /// out (R, C) T = (inp - mean) · rstd · weight + bias; bias may be empty.
  virtual void layer_norm(View out, View inp, View weight, View bias, View stats) = 0;
  /// out (R, 2) f32 = this piece's sums, see NormBackward::sums.
  virtual void layer_norm_sums(View out, View d_out, View inp, View weight, View stats) = 0;
  virtual void layer_norm_backward(const NormBackward& args) = 0;
  /// d_weight (1, C) += sum over rows of d_out · xhat; d_bias (1, C) += sum of d_out, or empty.
  virtual void layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                          View stats) = 0;

  /// RMSNorm is LayerNorm about zero instead of the mean. It needs moments about zero, and
  /// rms_norm_sums instead of layer_norm_sums; the other operations are LayerNorm's.
  ///
  /// out (R, 2) f32 = 0 and the sum of squares, from the moments (R, 2) of `count` elements.
  virtual void moments_about_zero(View out, View moments, std::int64_t count) = 0;
  /// out (R, 2) f32 = 0 and this piece's sum of g · xhat.
  virtual void rms_norm_sums(View out, View d_out, View inp, View weight, View stats) = 0;

  virtual void head_norm(const HeadNorm& args) = 0;
  virtual void head_norm_backward(const HeadNormBackward& args) = 0;

  virtual void rotary_embedding(const RotaryEmbedding& args) = 0;

  /// out (R, F) T = silu(gate) · up; each row of inp (R, 2F) is its gate, then its up.
  virtual void swiglu(View out, View inp) = 0;
  /// d_inp (R, 2F), which may be inp.
  virtual void swiglu_backward(View d_inp, View d_out, View inp) = 0;

  /// Tanh form of GELU (Hendrycks and Gimpel, 2016), as GPT-2 uses. (R, C) T.
  virtual void gelu(View out, View inp) = 0;
  virtual void gelu_backward(View d_inp, View d_out, View inp) = 0;

  /// out = a + b, (R, C); types may differ (sums in f32).
  virtual void add(View out, View a, View b) = 0;
  /// out = inp, (R, C), between any of f32 and bf16.
  virtual void cast(View out, View inp) = 0;
  virtual void dropout(const Dropout& args) = 0;
  /// out (1, C) f32 += sum over rows of inp (R, C) T.
  virtual void column_sum(View out, View inp) = 0;

  virtual void embedding(const TokenEmbedding& args) = 0;
  /// d_table (V, C) f32 += d_out rows, in the order of the rows.
  virtual void embedding_backward(View d_table, View d_out, View ids, std::int64_t first) = 0;
  /// d_positions (T, C) f32 += sum over sequences of d_out (B·T, C). For rows with explicit
  /// positions call embedding_backward instead, with the positions as ids.
  virtual void positions_backward(View d_positions, View d_out) = 0;

  /// out (R, 3) f32 = maximum, sum of exp(x - maximum), and the target's logit (0 if the target is
  /// not in this piece), of logits (R, V) T. targets (1, R) i32.
  virtual void softmax_stats(View out, View logits, View targets, VocabularyPiece piece) = 0;
  /// lse (R, 1) f32 = log-sum-exp, and loss (R, 1) f32 = lse minus the target's logit, from the
  /// stacked stats of all pieces (pieces · R, 3). Rows with a negative target have loss 0.
  virtual void combine_softmax(View loss, View lse, View stats, View targets) = 0;
  /// out (R, 1) f32 = 1 if no logit of any piece is larger than the target's, else 0, from the same
  /// stats; 0 if the target is negative.
  virtual void greedy_targets(View out, View stats, View targets) = 0;
  /// d_logits (R, V) T = (softmax - one hot) · scale; rows with a negative target and columns
  /// beyond piece.valid are zero. If both have the same type, d_logits may be logits.
  virtual void cross_entropy_backward(const LogitsBackward& args) = 0;

  /// out (1, 1) f64 += sum of inp (R, C) f32.
  virtual void sum(View out, View inp) = 0;
  /// out (1, 1) f64 += sum of squares of inp (R, C) T.
  virtual void squared_sum(View out, View inp) = 0;
  /// out (1, 1) f32 = min(1, max_norm / sqrt(squared_norm)), 1 where max_norm is 0;
  /// squared_norm (1, 1) f64.
  virtual void clip_factor(View out, View squared_norm, float max_norm) = 0;
  /// out (1, 1) i64 += elements of inp (R, C) T that are NaN or infinite.
  virtual void count_nonfinite(View out, View inp) = 0;

  virtual void adamw(const AdamWUpdate& args) = 0;
  virtual void sgd(const SgdUpdate& args) = 0;
};

/// Backend on the CPU: oneDNN for products, this project's kernels for the rest. The calling thread
/// uses `threads` OpenMP threads from now on. Throws if threads is below 1.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace axonn
