#pragma once

#include <string>

#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// A factor of each row: value · sigmoid(w · inp), as the MLP of all tokens beside Qwen2-MoE's
/// experts has it; the factor is in f32.
///
///   value, inp, out  (R, C)  columns over y; rows may be cut over x
///   name.weight (w)  (1, C)  cut over y
///
/// Communication on y: sums of one f32 per row, forward and backward.
class RowGate {
 public:
  RowGate(ParameterGroup& group, const std::string& name, std::int64_t width, double init_std);

  Var operator()(const Context& ctx, const Var& value, const Var& inp) const;

 private:
  struct Factors;
  Factors factors(const Context& ctx, const Chunk& inp) const;
  void backward(const Context& ctx, const Chunk& inp, const Factors& factors,
                const Tensor& d_factors) const;

  const Parameter* weight_;
};

}  // namespace axonn
