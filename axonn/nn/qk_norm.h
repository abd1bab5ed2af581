#pragma once

#include <string>

#include "axonn/nn/attention.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// RMSNorm of each query head and each key head on its own, as in Qwen3. The two weights (D) are
/// the same on all ranks. Their gradients are partial on x and y, because each rank sums over its
/// own heads; that sum at the end of a step is the only communication.
class QkNorm {
 public:
  /// Declares name.q_norm.weight and name.k_norm.weight.
  QkNorm(ParameterGroup& group, const std::string& name, const Heads& heads, float eps);

  /// Returns qkv (R, (h + 2k)·D), as attention() takes it, with normalized queries and keys.
  Var operator()(const Context& ctx, const Var& qkv) const;

 private:
  struct Norms {
    ops::HeadNorm q, k;
  };
  Norms norms(const LocalHeads& at, const View& out, const View& inp, const View& rstd) const;
  Tensor backward(const Context& ctx, const LocalHeads& at, const Tensor& d_out, const Chunk& qkv,
                  const Tensor& rstd) const;

  Heads heads_;
  float eps_;
  const Parameter *q_weight_, *k_weight_;
};

}  // namespace axonn
