#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/network/nn/options.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// Which rows of a pass use which of LoraConfig::choices, by number; the other rows use none.
/// Whoever runs the pass attaches it to the context.
struct AdapterRows {
  struct Run {
    std::int64_t choice = 0;
    std::int64_t first = 0, count = 0;  ///< rows

    bool operator==(const Run&) const = default;
  };
  std::vector<Run> runs;
};

/// A low-rank adapter of a frozen weight: out += scale · dropout(inp) · Aᵀ · Bᵀ.
///
///   global  dims      this rank holds        same on, with partial gradients
///   A       (r, in)   (r, in/Gi)             the output axis
///   B       (out, r)  (out/Go, r)            the input axis
///
/// Gi and Go are the extents of the layer's input and output axes. inp · Aᵀ stays partial over the
/// input axis, and so does its product with Bᵀ, which is added to the layer's own partial sum. So
/// an adapter adds no collective of activations. The partial gradients of A and B are summed once,
/// at the end of a step.
///
/// With LoraConfig::dora the adapter also has a magnitude m of each row of the sum of weight and
/// change, which it divides by its norm:
///
///   out = m / norms · (inp · Wᵀ + scale · inp · Aᵀ · Bᵀ) + bias
///   norms: of the rows of W + scale · B · A, without a gradient of their own
///
///   m       (out)     (out/Go)               the input axis
///
/// Norms need a sum of two f32 a row over the input axis; Magnitudes computes with them.
///
/// Sources: Hu et al., "LoRA: low-rank adaptation of large language models", 2021; Liu et al.,
/// "DoRA: weight-decomposed low-rank adaptation", 2024.
class Adapter {
 public:
  struct Options {
    std::int64_t rank = 0;
    double alpha = 0, dropout = 0;  ///< as in LoraConfig
    bool magnitude = false;         ///< has m
    double a_std = 0;               ///< standard deviation of A's initial values; 0: that of PEFT
    std::int64_t first_row = 0;  ///< column of this rank's out, of the layer, where B's rows begin
    /// Its number in LoraConfig::choices; none: all rows use it.
    std::optional<std::int64_t> choice = {};
  };
  /// Declares module.lora_A.weight and module.lora_B.weight in group, cut like `weight` (out, in),
  /// and module.lora_magnitude_vector.
  Adapter(ParameterGroup& group, const std::string& module, const Layout& weight,
          const Options& options);

  /// Adds this rank's partial sum to out (R, out/Go of the layer), in rows that use the adapter.
  /// inp is (R, in/Gi), `rows` its rows.
  void forward(const Context& ctx, const View& out, const Tensor& inp, const Rows& rows) const;
  /// Adds the gradients of A and B, and that of inp to d_inp unless d_inp is empty. d_out must
  /// have been gathered over the input axis.
  void backward(const Context& ctx, const View& d_inp, const Tensor& d_out, const Tensor& inp,
                const Rows& rows) const;

  /// m (out), or null.
  const Parameter* magnitude() const { return magnitude_; }
  /// Makes norms (out/Go, 1) f32, which are 0, this rank's part of the squared norms of the rows of
  /// W + scale · B · A; W (out/Go, in/Gi) are the adapter's rows of the layer's weight.
  void squared_norms(const Context& ctx, const View& norms, const View& weight) const;
  /// forward() and backward() of all rows without dropout. Unless `accumulate` is set, d_inp is
  /// written.
  void add(const Context& ctx, const View& out, const View& inp) const;
  struct Gradients {
    View d_inp;  ///< (R, in/Gi), or empty
    bool accumulate = true;
  };
  void add_gradients(const Context& ctx, const Gradients& to, const View& d_out,
                     const View& inp) const;

  /// Of an embedding, whose out are rows of the weight's transpose: adds scale · B[ids] · A to out
  /// (R, in/Gi), and the gradients of A and B. B has rows from `first` on.
  void add_rows(const Context& ctx, const View& out, const View& ids, std::int64_t first) const;
  void add_row_gradients(const Context& ctx, const View& d_out, const View& ids,
                         std::int64_t first) const;

  /// The adapter's columns of a value with those of the layer.
  View part_of(const View& out) const { return out.col_range(first_row_, b_->local_rows()); }
  View rows_of(const View& weight) const { return weight.row_range(first_row_, b_->local_rows()); }

 private:
  Tensor dropped(const Context& ctx, const Tensor& inp, const Rows& rows) const;
  void drop(const Context& ctx, const View& out, const View& inp, const Rows& rows) const;
  Tensor inner(const Context& ctx, const View& inp) const;
  Tensor rows_of_b(const Context& ctx, const View& ids, std::int64_t first) const;
  void scale(const Context& ctx, const Tensor& inner) const;

  std::int64_t rank_, first_row_;
  std::optional<std::int64_t> choice_;
  float scale_, dropout_;
  std::uint64_t key_;
  Axis in_axis_;
  const Parameter* a_;
  const Parameter* b_;
  const Parameter* magnitude_ = nullptr;
};

/// What is trained of one block beside its frozen parameters: the adapters of its layers, and the
/// parameters of LoraConfig::modules; and their groups.
class Adapters {
 public:
  /// `block` has no parameters yet; from now on it leaves those of LoraConfig::modules to a group
  /// of their own. With rank 0 there are no adapters, and nothing is frozen.
  Adapters(ParameterGroup& block, LoraConfig config);

  /// That of whole modules; and one of adapters, or one for each of LoraConfig::choices; without
  /// those that have no parameters.
  std::vector<ParameterGroup*> groups();
  bool has(const ParameterGroup* group) const;
  /// The parameters of LoraConfig::modules.
  const ParameterGroup& whole() const { return whole_; }
  /// Whether a layer has an adapter.
  bool adapts() const;
  /// The registered layers, in order.
  const std::vector<std::string>& layers() const { return layers_; }
  const GridShape& shape() const { return grid_.shape(); }
  /// A layer, such as "h.3.attn.c_attn": rows of a weight from this rank's first_row on.
  struct Layer {
    std::string module;
    Layout layout;
    const Parameter& weight;
    std::int64_t first_row = 0;
    double a_std = 0;  ///< as in Adapter::Options
  };
  /// Registers a layer. If it is a target, makes its adapters and appends them to `all`.
  void add_to(std::vector<Adapter>& all, const Layer& layer);

  /// Gives magnitudes their initial values, the norms of the weights' rows: adapters change nothing
  /// then. The block's groups must be gathered in ctx. Collective.
  void initialise_magnitudes(const Context& ctx);

 private:
  const Grid& grid_;
  LoraConfig config_;
  std::string block_;
  ParameterGroup whole_;
  std::vector<std::string> layers_;
  std::vector<std::unique_ptr<ParameterGroup>> groups_;  // null until a layer has one
  struct WithMagnitude {
    Adapter adapter;
    const Parameter* weight;
  };
  std::vector<WithMagnitude> magnitudes_;
};

/// Whether the group is of adapters, not of parameters that a model has without them.
bool is_of_adapters(const ParameterGroup& group);
/// Whether the group is of the adapters with this number in LoraConfig::choices.
bool is_of_choice(const ParameterGroup& group, std::int64_t choice);

}  // namespace axonn
