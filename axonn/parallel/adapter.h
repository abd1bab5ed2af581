#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// A low-rank adapter of a weight that is frozen: out += scale · dropout(inp) · Aᵀ · Bᵀ.
///
///   global  dims      this rank holds        along
///   A       (r, in)   (r, in/Gi)             the output axis, each rank's gradient a summand
///   B       (out, r)  (out/Go, r)            the input axis, likewise
///
/// Gi and Go are the extents of its layer's input and output axes. inp · Aᵀ is left partial over
/// the input axis, and so is what B makes of it: it joins the layer's own partial sum. So an
/// adapter sends nothing of its own but gradients of A and B, at the end of a step.
///
/// Source: Hu et al., "LoRA: low-rank adaptation of large language models", 2021.
class Adapter {
 public:
  struct Options {
    std::int64_t rank = 0;       ///< r
    double scale = 1;            ///< alpha / r
    double dropout = 0;          ///< probability
    std::int64_t first_row = 0;  ///< of this rank's rows of the layer's out, those of this weight
  };

  /// Declares module.lora_A.weight and module.lora_B.weight in group, cut as `weight` (out, in) is.
  Adapter(ParameterGroup& group, const std::string& module, const Layout& weight, Options options);

  /// Adds to out (R, out/Go of the layer) what this rank has of it; inp (R, in/Gi). `rows` are
  /// those of inp.
  void forward(const Context& ctx, const View& out, const Tensor& inp, const Rows& rows) const;
  /// d_out is whole on the input axis. Adds to d_inp, where it is not empty.
  void backward(const Context& ctx, const View& d_inp, const Tensor& d_out, const Tensor& inp,
                const Rows& rows) const;

 private:
  Tensor dropped(const Context& ctx, const Tensor& inp, const Rows& rows) const;
  axonn::Dropout mask(const Context& ctx, const View& out, const View& inp, const Rows& rows) const;
  Tensor inner(const Context& ctx, const Tensor& inp) const;
  View part_of(const View& out) const;

  Options options_;
  std::uint64_t key_;
  Axis in_axis_;
  const Parameter* a_;
  const Parameter* b_;
};

/// The adapters of a block of layers: which of them have one, and a group of parameters for all.
class Adapters {
 public:
  struct Options {
    std::int64_t rank = 0;  ///< 0: there are none, and nothing is frozen
    double alpha = 16, dropout = 0;
    std::vector<std::string> targets = {};  ///< layers by the last part of their names; none: all
  };

  Adapters(const std::string& block, const Grid& grid, Options options);

  /// Null where there are none.
  ParameterGroup* group() { return group_.get(); }
  const GridShape& shape() const { return grid_.shape(); }
  /// Whether a layer, such as "h.3.attn.c_attn", is to have one.
  bool wants(const std::string& module);
  /// Once all layers were asked for. Errors: UsageError if a target was none of them.
  void check_targets() const;
  /// Makes it.
  Adapter make(const std::string& module, const Layout& weight, std::int64_t first_row);

 private:
  const Grid& grid_;
  Options options_;
  std::vector<std::string> layers_;  // by the last parts of their names, in the order of asking
  std::unique_ptr<ParameterGroup> group_;
};

}  // namespace axonn
