#pragma once

#include <optional>
#include <string>

#include "axonn/parallel/adapter.h"
#include "axonn/parallel/attention.h"
#include "axonn/parallel/exchange.h"
#include "axonn/parallel/parameters.h"

namespace axonn {

/// Which of x and y a layer's input and output features lie over. A chain of layers alternates, so
/// activations are never moved between them.
enum class Orientation {
  normal,      ///< input over y, output over x: QKV, MLP up
  transposed,  ///< input over x, output over y: attention out, MLP down
};

/// out = inp · weightᵀ + bias on the 3D grid: the one tensor-parallel product of the library.
///
///   global           dims      this rank holds                    along
///   inp, d_inp       (R, in)   (R/Gd/Gz, in/Gi)                   the output axis
///   weight, d_weight (out, in) a Gz-th of (out/Go, in/Gi), flat   -
///   out, d_out       (R, out)  (R/Gd/Gz, out/Go)                  the input axis
///
/// Gi and Go are the extents of the input's and the output's axis. `along` is the axis on which a
/// value is the same, or cut further. Its communication is along that axis, of these elements:
///
///   inp, d_inp: R·in/(Gd·Gz·Gi)     forward              backward
///     same                          -                    all-reduce of d_inp, under d_weight
///     cut                           all-gather of inp    all-gather of inp again, under d_inp;
///                                                        reduce-scatter of d_inp, under d_weight
///   out, d_out: R·out/(Gd·Gz·Go)
///     same                          all-reduce of out    -
///     cut                           reduce-scatter       all-gather of d_out
///
/// The input is taken as it comes; the output is cut where ctx.sequence_parallel asks and the rows
/// (or the heads) divide. Its group moves the weight.
///
/// The bias is added once: by the first rank of the input axis, before the sum.
///
/// A frozen weight has no gradient; the layer, or each of its parts, may have an adapter.
///
/// What needs no sum of other ranks in between is left to the product (Matmul's epilogue): GELU of
/// out where the input's axis has extent 1, GELU's derivative of d_inp where the output's has, both
/// unless adapters add to the product; and the bias's gradient where d_out is the same on the
/// input's axis.
///
/// Source: Singh et al., 2025, arXiv:2502.08145; after Agarwal et al., 1995.
class Linear {
 public:
  struct Options {
    std::int64_t in = 0, out = 0;
    Orientation orientation = Orientation::normal;
    bool bias = true;
    double init_std = 0.02;
    /// The output is query, key and value features of these heads, for attention.
    std::optional<Heads> heads = {};
    std::vector<Segment> segments = {};  ///< else of the output features; none: one even segment
    /// Where set, a parameter of its own for every segment, name.PART.weight and name.PART.bias,
    /// which lie one after another: one product for all.
    std::vector<std::string> parts = {};
    Adapters* adapters = nullptr;  ///< those of the block; null: none
  };

  /// Declares name.weight (out, in) and name.bias (out), or those of its parts.
  Linear(ParameterGroup& group, const std::string& name, Options options);

  /// Errors: inp's columns do not lie over this layer's input axis.
  Var operator()(const Context& ctx, const Var& inp) const;

  /// gelu(ctx, (*this)(ctx, inp)). Errors: the same.
  Var gelu(const Context& ctx, const Var& inp) const;

 private:
  enum class Then { nothing, gelu };

  Var apply(const Context& ctx, const Var& inp, Then then) const;
  Gather gather(const Context& ctx, const Chunk& inp) const;
  Runs out_runs(const Context& ctx) const;
  void adapt(Adapters& adapters, const std::string& name, const Layout& layout,
             const std::vector<std::string>& parts);
  Chunk forward(const Context& ctx, const Chunk& inp, const Tensor& whole, Then then) const;
  void backward(const Context& ctx, const Chunk& inp, const Placement& out,
                const Tensor& d_piece) const;
  void bias_backward(const Context& ctx, Cut cut, const Tensor& d_piece) const;

  Axis in_axis_, out_axis_;
  std::optional<Heads> heads_;
  std::string again_;  // what traces call the second gather of the input
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
  std::vector<Adapter> adapters_;
};

}  // namespace axonn
