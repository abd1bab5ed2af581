#pragma once

#include <string>

#include "axonn/parallel/attention.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// RMSNorm of every query head and every key head by itself, as Qwen3 has it. The two weights (D)
/// are the same on all ranks; their gradients are partial on x and y, where each rank adds up its
/// own heads. No communication but that sum.
class QkNorm {
 public:
  /// Declares name.q_norm.weight and name.k_norm.weight.
  QkNorm(ParameterGroup& group, const std::string& name, const Heads& heads, float eps);

  /// qkv (R, (h + 2k)·D), as attention() takes it, with its queries and keys normed.
  Var operator()(const Context& ctx, const Var& qkv) const;

 private:
  struct Norms {
    HeadNorm q, k;
  };
  Norms norms(const LocalHeads& at, const View& out, const View& inp, const View& rstd) const;
  Tensor backward(const Context& ctx, const LocalHeads& at, const Tensor& d_out, const Chunk& qkv,
                  const Tensor& rstd) const;

  Heads heads_;
  float eps_;
  const Parameter *q_weight_, *k_weight_;
};

}  // namespace axonn
