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
/// a, b  f32 or bf16, the same; bias (1, N) of their type; out of their type or f32.
///
/// What is below `accumulate` is the product's epilogue: work on the result, or on a, that some
/// devices do while they have it at hand. Of GELU, its gradient and `accumulate` only one.
struct Matmul {
  View out;  ///< (M, N)
  View a;    ///< (M, K), or (K, M) if transposed
  View b;    ///< (K, N), or (N, K) if transposed
  bool a_transposed = false;
  bool b_transposed = false;
  View bias = {};           ///< (1, N) or empty
  bool accumulate = false;  ///< out += instead of out =

  bool gelu = false;     ///< out is gelu() of what it would be
  View gelu_input = {};  ///< (M, N) of out's type: becomes that, for backward; or empty
  /// (M, N) of out's type, a gelu_input: out is multiplied by GELU's derivative there; or empty.
  /// Not with a bias.
  View gelu_derivative_at = {};
  /// (1, M) f32: the sum over a's K rows is added, which for the product of a weight's gradient is
  /// that of its bias; or empty. a must be transposed.
  View bias_gradient = {};
};

/// Causal attention over heads, grouped key-value heads included.
///
/// Query head j uses key-value head (first_query + j) / group of those given. Rows are sequences
/// one after another, `positions` each. Columns are heads one after another, `head_dim` each.
struct Attention {
  View q;                      ///< (B·T, h·D)
  View k, v;                   ///< (B·T, k·D)
  View out;                    ///< (B·T, h·D)
  View stats;                  ///< (B·T, h) f32: log of the sum of exponentials, kept for backward
  std::int64_t positions = 0;  ///< T
  std::int64_t heads = 0;      ///< h, query heads here
  std::int64_t head_dim = 0;   ///< D
  std::int64_t group = 1;      ///< query heads that share a key-value head
  std::int64_t first_query = 0;  ///< what query head 0 is within its group
  std::int64_t window = 0;       ///< keys that a query sees, its own the last of them; 0: all
  float scale = 1;               ///< of the scores, usually 1 / sqrt(D)
  /// (1, B·T) i32: the first row of its sequence, 0 to its own, that each row sees: where its
  /// document begins. Empty: 0.
  View starts = {};
};

/// The gradients of Attention; d_q, d_k and d_v are overwritten.
struct AttentionBackward {
  Attention forward;
  View d_out;     ///< (B·T, h·D)
  View d_q;       ///< (B·T, h·D)
  View d_k, d_v;  ///< (B·T, k·D)
};

/// Puts the keys, or the values, of new tokens to those that are kept of their sequences. A slot
/// has room for `entries` positions of one sequence, a head's one after another: position p lies at
/// entry p % entries. Row r is position positions[r] of slot slots[r]; none where that is negative.
struct KeepHeads {
  View kept;       ///< (slots · k · entries, D)
  View inp;        ///< (R, k·D)
  View slots;      ///< (1, R) i32
  View positions;  ///< (1, R) i32
  std::int64_t entries = 0;
};

/// Attention of new tokens to the keys and values kept of their sequences, their own among them:
/// row r sees its own position and those before it, which must all be there. Rows of no slot become
/// zero.
struct CachedAttention {
  View q;                     ///< (R, h·D)
  View keys, values;          ///< (slots · k · entries, D)
  View out;                   ///< (R, h·D)
  View slots, positions;      ///< (1, R) i32, as in KeepHeads
  std::int64_t entries = 0;   ///< of a slot
  std::int64_t longest = 0;   ///< every position is less than this
  std::int64_t heads = 0;     ///< h, query heads here
  std::int64_t kv_heads = 0;  ///< k
  std::int64_t head_dim = 0;  ///< D; the rest as in Attention
  std::int64_t group = 1;
  std::int64_t first_query = 0;
  std::int64_t window = 0;
  float scale = 1;
};

/// A norm's view of one row piece: (R, C) of rows whose whole width is `width`.
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

/// RMSNorm of every head by itself, one weight for all: (R, h·D), h heads of D columns.
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

/// Rotary positions, the halves of a head paired.
struct RotaryEmbedding {
  View out;              ///< (R, h·D), may be inp
  View inp;              ///< (R, h·D)
  View table;            ///< (T, D) f32: cosines, then sines, of a position's D/2 angles
  bool inverse = false;  ///< turns back: what the gradient goes through
  View positions = {};   ///< (1, R) i32, below T; or empty: row r is position r % T
};

/// Rows of a table, and of learned positions where there are any.
struct TokenEmbedding {
  View out;    ///< (R, C) T
  View ids;    ///< (1, R) i32
  View table;  ///< (V, C) T: ids [first, first + V); others count as a row of zeros
  std::int64_t first = 0;
  View learned = {};    ///< (P, C) T, added; or empty
  View positions = {};  ///< (1, R) i32, below P; or empty: row r is position r % P
};

/// Elements of a piece of a value, each kept or set to 0. Which are kept depends on the key and on
/// the element's place in the whole value alone.
struct Dropout {
  View out;                    ///< (R, C) T, may be inp
  View inp;                    ///< (R, C) T
  float scale = 1;             ///< kept elements are multiplied by scale / (1 - probability)
  float probability = 0;       ///< of an element to be set to 0
  std::uint64_t key = 0;       ///< another key, another choice
  std::int64_t first_row = 0;  ///< the place of element (0, 0)
  std::int64_t first_col = 0;
};

/// The pieces of a vocabulary: this rank has columns [first, first + valid) of the logits, and
/// what follows up to the view's width is padding.
struct VocabularyPiece {
  std::int64_t first = 0;
  std::int64_t valid = 0;
};

/// The gradient of a piece of the logits.
struct LogitsBackward {
  View d_logits;  ///< (R, V) T
  View logits;    ///< (R, V) T, its type may differ
  View lse;       ///< (R, 1) f32: log of the sum of exponentials over all pieces
  View targets;   ///< (1, R) i32
  VocabularyPiece piece;
  float scale = 1;
};

/// One step of AdamW (Loshchilov and Hutter, 2019) on a flat piece of parameters.
struct AdamW {
  View master;         ///< (1, n) f32
  View first, second;  ///< (1, n) f32, the moments
  View gradient;       ///< (1, n) f32
  View out;            ///< (1, n) the compute copy, f32 or bf16
  View scale;          ///< (1, 1) f32 on the device: the gradient's factor (clipping)
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  std::int64_t step = 1;     ///< counted from 1, for the bias correction
  std::int64_t decayed = 0;  ///< the first `decayed` elements decay, the rest does not
};

/// One step of gradient descent with decoupled decay on a flat piece of parameters.
struct Sgd {
  View master, gradient, out, scale;  ///< as in AdamW
  float lr = 0, weight_decay = 0;
  std::int64_t decayed = 0;
};

/// The arithmetic of one rank on its device. Every operation is enqueued on device().compute() and
/// returns; none waits for the host. A View that is documented as T is f32 or bf16.
///
/// Gradients of parameters are added to (+=) and are f32; everything else is overwritten (=).
/// Every sum has one fixed order, whatever the number of threads.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device& device() = 0;
  virtual std::string name() const = 0;

  /// Names the layer that the operations from now on belong to, for traces.
  virtual void mark(std::string_view layer) { (void)layer; }

  /// What whoever runs this should know of how operations were computed since the last call, such
  /// as a library that did not take them: a line each, the same never twice.
  virtual std::vector<std::string> take_remarks() { return {}; }

  /// A product and its epilogue: in one, by product(), where fuses() says so; else the product, and
  /// then gelu(), gelu_backward() and column_sum(), which round what is stored in between.
  void matmul(const Matmul& args);
  /// What a device does of matmul(): a product, with an epilogue only where it fuses that.
  virtual void product(const Matmul& args) = 0;
  /// Whether product() computes the epilogue of this product as well. Depends on what
  /// matmul_ways() and set_matmul_way() go by, types, strides and alignment.
  virtual bool fuses(const Matmul& args) {
    (void)args;
    return false;
  }
  /// The ways in which this backend can compute such a product, by name, its default first. They
  /// differ in time and in the order of rounding, not in what they need of the caller.
  virtual std::vector<std::string> matmul_ways(const MatmulShape& shape) const = 0;
  /// Products of this shape are computed in that way from now on. False if there is no such way;
  /// then nothing changes.
  virtual bool set_matmul_way(const MatmulShape& shape, std::string_view way) = 0;
  /// What the fastest way depends on besides the shape: device, threads, library and its version.
  virtual std::string matmul_device() const = 0;

  virtual void attention(const Attention& args) = 0;
  virtual void attention_backward(const AttentionBackward& args) = 0;
  virtual void keep_heads(const KeepHeads& args) = 0;
  virtual void cached_attention(const CachedAttention& args) = 0;

  /// out (R, 2) f32 = mean and sum of squared deviations of each row of inp (R, C) T.
  virtual void row_moments(View out, View inp) = 0;
  /// out (R, C) T = a + b, and moments (R, 2) f32 as row_moments has them of out, in one pass: what
  /// a norm behind a residual sum needs. The bits are those of add, then row_moments.
  virtual void add_moments(View out, View moments, View a, View b) = 0;
  /// out (R, 2) f32 = mean and 1 / sqrt(variance + eps) from the `pieces` stacked moments
  /// (pieces · R, 2), each over `count` elements, by Chan's formula in the order of the pieces.
  virtual void combine_moments(View out, View moments, std::int64_t count, float eps) = 0;
  /// out (R, C) T = (inp - mean) · rstd · weight + bias; bias may be empty.
  virtual void layer_norm(View out, View inp, View weight, View bias, View stats) = 0;
  /// out (R, 2) f32 = this piece's sums, see NormBackward::sums.
  virtual void layer_norm_sums(View out, View d_out, View inp, View weight, View stats) = 0;
  virtual void layer_norm_backward(const NormBackward& args) = 0;
  /// d_weight (1, C) += sum over rows of d_out · xhat; d_bias (1, C) += sum of d_out, or empty.
  virtual void layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                          View stats) = 0;

  /// RMSNorm is LayerNorm about zero: with moments about zero, and the sums of rms_norm_sums in
  /// place of layer_norm_sums', all other operations are the same.
  /// out (R, 2) f32 = 0 and the sum of squares, from the moments (R, 2) of `count` elements.
  virtual void moments_about_zero(View out, View moments, std::int64_t count) = 0;
  /// out (R, 2) f32 = 0 and this piece's sum of g · xhat.
  virtual void rms_norm_sums(View out, View d_out, View inp, View weight, View stats) = 0;

  virtual void head_norm(const HeadNorm& args) = 0;
  virtual void head_norm_backward(const HeadNormBackward& args) = 0;

  virtual void rotary_embedding(const RotaryEmbedding& args) = 0;

  /// out (R, F) T = silu(gate) · up, inp (R, 2F) = gate, then up, of each row.
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
  /// d_positions (T, C) f32 += sum over sequences of d_out (B·T, C). Where rows have positions of
  /// their own, they are the ids of an embedding_backward.
  virtual void positions_backward(View d_positions, View d_out) = 0;

  /// out (R, 3) f32 = maximum, sum of exp(x - maximum), and the target's logit or 0 if it is not
  /// here, of logits (R, V) f32 or bf16. targets (1, R) i32.
  virtual void softmax_stats(View out, View logits, View targets, VocabularyPiece piece) = 0;
  /// loss (R, 1) f32 = log-sum-exp minus target logit, and lse (R, 1) f32, from the stacked pieces
  /// (pieces · R, 3); rows whose target is negative count nothing (loss 0).
  virtual void combine_softmax(View loss, View lse, View stats, View targets) = 0;
  /// out (R, 1) f32 = 1 where no logit of any piece is larger than the target's, else 0, from stats
  /// as above; 0 where the target is negative.
  virtual void greedy_targets(View out, View stats, View targets) = 0;
  /// d_logits (R, V) T = (softmax - one hot) · scale; rows with a negative target and columns
  /// beyond piece.valid are zero. Types may differ; where they do not it may be in place.
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

  virtual void adamw(const AdamW& args) = 0;
  virtual void sgd(const Sgd& args) = 0;
};

/// oneDNN for products, this project's kernels for the rest. `threads` OpenMP threads are used by
/// the calling thread from now on.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace axonn
