#pragma once

#include <memory>
#include <optional>
#include <string>

#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

class Magnitudes;

/// Which of x and y cuts a layer's input and output features. Layers in a chain alternate, so
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
/// value is the same, or cut further. Collectives run along that axis, on so many elements:
///
///   inp, d_inp: R·in/(Gd·Gz·Gi)     forward              backward
///     same                          -                    all-reduce of d_inp, under d_weight
///     cut                           all-gather of inp    all-gather of inp again, under d_inp;
///                                                        reduce-scatter of d_inp, under d_weight
///   out, d_out: R·out/(Gd·Gz·Go)
///     same                          all-reduce of out    -
///     cut                           reduce-scatter       all-gather of d_out
///
/// The input may be the same or cut. The output is cut with RunSettings::sequence_parallel, if the
/// axis divides its rows (or its heads). The weight is gathered and reduced by its ParameterGroup.
///
/// The bias is added once: by the first rank of the input axis, before the sum.
///
/// A frozen weight has no gradient. The layer, or each of its parts, may have an adapter. For one
/// with a magnitude this rank's part of the product, (R, out/Go), is kept for backward.
///
/// The product's epilogue (Matmul) also computes whatever needs no sum over ranks in between: GELU
/// of out if the input's axis has extent 1, GELU's derivative for d_inp if the output's axis has
/// extent 1 (neither with adapters, which add to the product), and the bias's gradient if d_out is
/// the same on the input's axis.
///
/// Source: Singh et al., 2025, arXiv:2502.08145; after Agarwal et al., 1995.
class Linear {
 public:
  struct Options {
    std::int64_t in = 0, out = 0;
    /// Input features that stay together, such as those of a head: the last ranks may have fewer.
    /// 0: the axis must divide them.
    std::int64_t in_unit = 0;
    Orientation orientation = Orientation::normal;
    bool bias = true;
    double init_std = 0.02;
    /// If set, the output is the query, key and value features of these heads, for attention().
    std::optional<Heads> heads = {};
    std::vector<Segment> segments = {};  ///< without heads, of the output; empty: one, even
    /// If set, each segment has its own parameters, name.PART.weight and name.PART.bias. They lie
    /// one after another, so that one product serves all.
    std::vector<std::string> parts = {};
    Adapters* adapters = nullptr;  ///< of the block; null: none
  };

  /// Declares name.weight (out, in) and name.bias (out), or those of its parts.
  Linear(ParameterGroup& group, const std::string& name, Options options);

  /// Throws if inp's columns are not cut over this layer's input axis.
  Var operator()(const Context& ctx, const Var& inp) const;

  /// gelu(ctx, (*this)(ctx, inp)), in the product's epilogue if possible. Throws likewise.
  Var gelu(const Context& ctx, const Var& inp) const;

  /// For layers that multiply with it otherwise: throws Error if there are adapters or a bias.
  const Parameter& only_weight() const;

 private:
  /// The operation after the product: GELU, whose input is kept or not.
  enum class Then { nothing, gelu, kept_gelu };

  Var apply(const Context& ctx, const Var& inp, Then then) const;
  Gather gather(const Context& ctx, const Chunk& inp) const;
  Tensor d_input(const Context& ctx, const Tensor& d_out, const GeluInput& before) const;
  Runs out_runs(const Context& ctx) const;
  Cut out_cut(const Context& ctx, const Rows& rows, std::int64_t count) const;
  struct Product {
    Tensor value, after;
    std::shared_ptr<Magnitudes> magnitudes;  // of the adapters; null: they have none
  };
  Product product(const Context& ctx, const Tensor& whole, const Rows& rows, Then then) const;
  void let_remake_product(const Context& ctx, Chunk& out, const Chunk& inp,
                          std::shared_ptr<Tensor> after) const;
  /// For what all weights have in common.
  const Parameter& weight() const { return *weights_.front(); }
  std::int64_t out_cols() const;
  void for_weights(const auto& f) const;
  bool learns() const { return !weight().frozen() || !adapters_.empty(); }
  void adapt(Adapters& adapters, const std::string& name, const Layout& layout,
             const std::vector<std::string>& parts);
  Chunk forward(const Context& ctx, const Chunk& inp, const Tensor& whole, Then then) const;
  /// What backward() needs of the forward pass.
  struct Kept {
    SavedChunk inp;
    std::shared_ptr<Magnitudes> magnitudes;
  };
  void backward(const Context& ctx, const Kept& kept, const Placement& out,
                const Tensor& d_piece) const;
  void bias_backward(const Context& ctx, Cut cut, const Tensor& d_piece) const;

  Axis in_axis_, out_axis_;
  std::optional<Heads> heads_;
  std::string again_;                      // label of backward's gather of the input, in traces
  std::vector<const Parameter*> weights_;  // rows one after another; several if kept differently
  const Parameter* bias_ = nullptr;
  std::vector<Adapter> adapters_;
};

}  // namespace axonn
