#pragma once

#include <string>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// out = (inp - mean) / sqrt(variance + eps) · weight + bias for each row. The `width` columns are
/// cut over y, and so are weight and bias. If rows are cut over x, the gradients of weight and bias
/// are partial there.
///
/// Communication on y, two f32 per row: forward all-gathers each piece's mean and sum of squared
/// deviations, combined by Chan's formula; backward all-reduces two sums.
///
/// Sources: Ba et al., "Layer Normalization", 2016; Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979.
class LayerNorm {
 public:
  struct Options {
    std::int64_t width = 0;
    bool bias = true;
    float eps = 1e-5f;
    bool about_zero = false;  ///< take 0 as the mean, as RmsNorm does
  };

  /// Declares name.weight (width) and name.bias (width).
  LayerNorm(ParameterGroup& group, const std::string& name, Options options);

  Var operator()(const Context& ctx, const Var& inp) const;

 private:
  struct Sums {
    Tensor d_out, sums;
  };
  Tensor gather_moments(const Context& ctx, const Chunk& inp) const;
  Chunk forward(const Context& ctx, const Chunk& inp, const Tensor& moments) const;
  Sums start_backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                      Tensor d_out) const;
  void backward(const Context& ctx, const Chunk& inp, const Tensor& stats, const Sums& sums) const;

  Options options_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

/// out = inp / sqrt(mean of inp² + eps) · weight for each row: LayerNorm with 0 as the mean and
/// without bias. Layout and communication are those of LayerNorm.
///
/// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
class RmsNorm : public LayerNorm {
 public:
  struct Options {
    std::int64_t width = 0;
    float eps = 1e-5f;
  };

  /// Declares name.weight (width).
  RmsNorm(ParameterGroup& group, const std::string& name, Options options)
      : LayerNorm(group, name,
                  {.width = options.width, .bias = false, .eps = options.eps, .about_zero = true}) {
  }
};

}  // namespace axonn
