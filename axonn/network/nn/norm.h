#pragma once

#include <array>
#include <string>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// Normalizes each row:
///
///   layer   out = (inp - mean) / sqrt(variance + eps) · weight + bias
///   rms     out = inp / sqrt(mean of inp² + eps) · weight: the same with 0 as the mean, and
///           without bias
///
/// or with 1 + weight instead of the weight, as in Gemma.
///
/// The `width` columns are cut over y, and so are weight and bias. If rows are cut over x, the
/// gradients of weight and bias are partial there.
///
/// Communication on y, two f32 per row: forward all-gathers each piece's mean and sum of squared
/// deviations, combined by Chan's formula; backward all-reduces two sums.
///
/// Sources: Ba et al., "Layer Normalization", 2016; Zhang and Sennrich, "Root Mean Square Layer
/// Normalization", 2019; Chan et al., "Updating formulae and a pairwise algorithm for computing
/// sample variances", 1979.
class Norm {
 public:
  enum class Kind : std::uint8_t { layer, rms };
  struct Options {
    std::int64_t width = 0;
    Kind kind = Kind::layer;
    bool bias = true;  ///< of Kind::layer
    float eps = 1e-5f;
    bool plus_one = false;  ///< the factors are 1 + weight
    Axis axis = Axis::y;    ///< that cuts the columns; below it is y
  };

  /// Declares name.weight (width), and name.bias (width) if it has one.
  Norm(ParameterGroup& group, const std::string& name, Options options);

  /// Returns (R, width), with the placement of inp. Throws if the columns of inp are not `width`
  /// over y.
  Var operator()(const Context& ctx, const Var& inp) const;

 private:
  struct Sums {
    Tensor d_out, sums;
  };
  void check_columns(const Chunk& inp) const;
  Tensor gather_moments(const Context& ctx, const Chunk& inp) const;
  /// `moments`: of all ranks of y; empty: y is 1.
  Chunk forward(const Context& ctx, const Chunk& inp, const Tensor& moments) const;
  Sums start_backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                      Tensor d_out) const;
  void backward(const Context& ctx, const Chunk& inp, const Tensor& stats, const Sums& sums) const;
  /// Both, where y is 1.
  void backward_of_whole_rows(const Context& ctx, const Chunk& inp, const Tensor& stats,
                              const Tensor& d_out) const;

  Options options_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

/// Of norms of queries and keys.
struct QkNormOptions {
  float eps = 1e-5f;
  bool plus_one = false;  ///< the factors are 1 + weight
};

/// RMSNorm of each query head, and each key head, on its own, as in Qwen3. The two weights (D) are
/// the same on all ranks. Their gradients are partial on x and y, because each rank sums over its
/// own heads; that sum at the end of a step is the only communication.
class QkNorm {
 public:
  /// Declares name.q_norm.weight and name.k_norm.weight.
  QkNorm(ParameterGroup& group, const std::string& name, const Heads& heads,
         const QkNormOptions& options);

  /// Returns qkv (R, (h + 2k)·D), as attention() takes it, with normalized queries and keys.
  Var operator()(const Context& ctx, const Var& qkv) const;

 private:
  /// Calls f with the norms of queries and of keys.
  template <typename F>
  void with_norms(const Context& ctx, const LocalHeads& at, ops::HeadNorm all, const F& f) const;
  Tensor backward(const Context& ctx, const LocalHeads& at, const Tensor& d_out, const Chunk& qkv,
                  const Tensor& rstd) const;

  Heads heads_;
  QkNormOptions options_;
  const Parameter* q_weight_;
  const Parameter* k_weight_ = nullptr;  // null: there are queries alone (Heads::each)
};

/// RMSNorm of the queries of all heads together, and of the keys, as in OLMoE:
///
///   q = q / sqrt(mean of q² over the H·D columns + eps) · weight        k likewise, over K·D
///
/// The weights (H·D) and (K·D) are cut as the heads are. A key head that several ranks of x hold
/// counts once. If rows are cut over y, the gradients of the weights are partial there.
///
/// Communication on x, and on y if heads are cut over it, four f32 per row: forward and backward
/// each all-reduce the sums of q and of k.
class QkWidthNorm {
 public:
  /// Declares name.q_norm.weight and name.k_norm.weight.
  QkWidthNorm(ParameterGroup& group, const std::string& name, const Heads& heads,
              const QkNormOptions& options);

  /// Returns qkv (R, (h + 2k)·D), as attention() takes it, with normalized queries and keys.
  Var operator()(const Context& ctx, const Var& qkv) const;

 private:
  struct Part;
  std::array<Part, 2> parts(const Context& ctx, const LocalHeads& at, AxisSet over) const;
  static Tensor padded_like(const Context& ctx, const LocalHeads& at, const Tensor& qkv);
  void sum(const Context& ctx, Tensor& sums, AxisSet over) const;
  Tensor start_sums(const Context& ctx, const Chunk& qkv) const;
  Chunk forward(const Context& ctx, const Chunk& qkv, const Tensor& sums) const;
  Tensor backward(const Context& ctx, const Tensor& d_out, const Chunk& qkv,
                  const Tensor& stats) const;

  Heads heads_;
  QkNormOptions options_;
  const Parameter *q_weight_, *k_weight_;
};

}  // namespace axonn
