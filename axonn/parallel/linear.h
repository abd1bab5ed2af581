#pragma once

#include <string>
#include <vector>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// Which of x and y a layer's input and output features lie over. A chain of layers alternates, so
/// activations are never moved between them.
enum class Orientation {
  normal,      ///< input over y, output over x: QKV, MLP up
  transposed,  ///< input over x, output over y: attention out, MLP down
};

/// out = inp · weightᵀ + bias on the 3D grid: the one tensor-parallel product of the library.
///
///   global           dims      this rank holds                  same on
///   inp, d_inp       (R, in)   (R/Gd/Gz, in/Gi)                 output axis
///   weight, d_weight (out, in) a Gz-th of (out/Go, in/Gi), flat  -
///   out, d_out       (R, out)  (R/Gd/Gz, out/Go)                input axis
///
/// Gi and Go are the extents of the input's and the output's axis. Communication, elements a rank:
/// all-reduce of out on the input axis, R·out/(Gd·Gz·Go); all-reduce of d_inp on the output axis,
/// R·in/(Gd·Gz·Gi), under the product of d_weight. Its group moves the weight.
///
/// The bias is added once: by the first rank of the input axis, before the sum.
///
/// Source: Singh et al., 2025, arXiv:2502.08145; after Agarwal et al., 1995.
class Linear {
 public:
  struct Options {
    std::int64_t in = 0, out = 0;
    Orientation orientation = Orientation::normal;
    bool bias = true;
    double init_std = 0.02;
    std::vector<Segment> segments = {};  ///< of the output features; none means one even segment
  };

  /// Declares name.weight (out, in) and name.bias (out).
  Linear(ParameterGroup& group, const std::string& name, Options options);

  /// Errors: inp's columns do not lie over this layer's input axis.
  Var operator()(const Context& ctx, const Var& inp) const;

 private:
  Chunk forward(const Context& ctx, const Chunk& inp) const;

  Axis in_axis_, out_axis_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace axonn
