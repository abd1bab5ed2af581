#pragma once

#include <string>

#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// xIELU of each element, with two learned numbers p and n:
///
///   x > 0     ap · x² + x/2               ap = log(1 + e^p)
///   else      an · (expm1(x) - x) + x/2   an = 1/2 + log(1 + e^n)
///
/// They start where ap = an = 0.8, and have no weight decay. They are the same on all ranks. Their
/// gradients are partial on x and y, because each rank sums over its own elements; that sum at the
/// end of a step is the only communication.
///
/// Source: Huang and Schlag, "Deriving activation functions using integration", 2024 (arXiv
/// 2411.13010).
class Xielu {
 public:
  /// 1/2 above, and the number that published code has as a limit near 0; see ops/rowwise/xielu.h.
  static constexpr double kBeta = 0.5, kEps = -1e-6;

  /// Declares name.alpha_p (1) and name.alpha_n (1).
  Xielu(ParameterGroup& group, const std::string& name);

  /// (R, F), with the placement of inp. Keeps its input for backward.
  Var operator()(const Context& ctx, const Var& inp) const;

 private:
  Tensor backward(const Context& ctx, const Chunk& inp, const Tensor& d_out) const;

  const Parameter *p_, *n_;
};

}  // namespace axonn
