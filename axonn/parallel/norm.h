#pragma once

#include <string>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// out = (inp - mean) / sqrt(variance + eps) · weight + bias over each row of `width` columns that
/// lie over y; weight and bias are cut alike. Where rows are cut over x, their gradients are
/// partial on it.
///
/// Communication on y, f32 a row: forward (mean, sum of squared deviations) of each piece in one
/// all-gather, combined by Chan's formula; backward two sums in one all-reduce.
///
/// Sources: Ba et al., "Layer Normalization", 2016; Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979.
class LayerNorm {
 public:
  struct Options {
    std::int64_t width = 0;
    bool bias = true;
    float eps = 1e-5f;
  };

  /// Declares name.weight (width) and name.bias (width).
  LayerNorm(ParameterGroup& group, const std::string& name, Options options);

  Var operator()(const Context& ctx, const Var& inp) const;

 private:
  Chunk forward(const Context& ctx, const Chunk& inp) const;
  void backward(const Context& ctx, const Chunk& inp, const Tensor& stats, Gradient& out) const;

  Options options_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace axonn
