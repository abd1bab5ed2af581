#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/network/model/coded_groups.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/network/nn/embedding.h"
#include "axonn/network/nn/layer_inputs.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"
#include "axonn/network/nn/pointwise.h"

namespace axonn {

class Experts;
class MtpLayer;

/// The norms of attention, or of the MLP, at its input and at its output; one of them may be null.
struct BlockNorms {
  const Norm* input = nullptr;
  const Norm* output = nullptr;
};

/// What a block gets besides the residual stream.
struct BlockInputs {
  Var of_layer = {};     ///< of ModelConfig::layer_input columns; empty: there is none
  Var keys_values = {};  ///< of another layer, if the block has no keys of its own
};

/// A block of a Decoder: parameters, of which the products' matrices may be quantized
/// (ModelConfig::quantize), and adapters if the config has any. It computes x + s f(x), f
/// being attention, then the MLP, each with its norms, and s residual_scale.
class DecoderBlock {
 public:
  /// Attention sees `window` positions, its own included; 0: all.
  DecoderBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
               std::int64_t window);
  virtual ~DecoderBlock() = default;

  virtual Var operator()(const Context& ctx, Var x) const = 0;
  /// The same, and then the chunks of its keys and values if ModelConfig::gives_keys().
  virtual Var with_inputs(const Context& ctx, Var x, const BlockInputs&) const {
    return (*this)(ctx, std::move(x));
  }

  /// All of the block's groups with parameters, in the order in which they are gathered.
  virtual std::vector<ParameterGroup*> groups();
  Adapters& adapters() { return adapters_; }
  /// The experts of its MLP; null if that is dense.
  virtual const Experts* experts() const { return nullptr; }

 protected:
  /// x + s · output norm(f(input norm(x))).
  template <typename F>
  Var residual(const Context& ctx, const Var& x, const BlockNorms& norms, const F& f) const {
    Var out = f(norms.input ? (*norms.input)(ctx, x) : x);
    if (norms.output) out = (*norms.output)(ctx, out);
    if (residual_scale_ != 1) out = scale(ctx, out, residual_scale_);
    return add(ctx, x, out);
  }

  /// The standard deviation of the initial weights of the block's products.
  static double init_std(const ModelConfig& config);

  /// Of the product hidden -> queries, keys and values.
  Linear::Options qkv_options(const ModelConfig& config, bool bias,
                              std::vector<std::string> parts = {});
  /// Of the MLP's first product, hidden -> out.
  Linear::Options up_options(const ModelConfig& config, std::int64_t out, bool bias);
  /// Of a product that projects into the residual stream. As in GPT-2, its initial weights are
  /// smaller in deeper models, so that the variance of the stream does not grow with depth.
  /// in_unit: the head width, or 1.
  Linear::Options residual_options(const ModelConfig& config, std::int64_t in, std::int64_t in_unit,
                                   bool bias);

  ParameterGroup parameters_;
  Adapters adapters_;
  std::optional<CodedGroups> codes_;  // of parameters_, the matrices of products
  const Heads heads_;

 private:
  const float residual_scale_;
};

/// A model of this library: an embedding, blocks one after another, a final norm, and an output
/// layer, tied to the embedding or not. A family derives from it, and adds its blocks when it is
/// made. Parameters have the names of Hugging Face's models.
class Decoder : public LanguageModel {
 public:
  ~Decoder() override;
  /// With an MtpLoss, also of the tokens after those. Throws Error unless `tokens` has them.
  void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) override;
  std::vector<ParameterGroup*> groups() override;
  void initialise_from_others(const Context& ctx) override;
  std::int64_t vocab() const override { return config_.vocab; }
  Routers routers() const override { return routers_; }
  std::int64_t mtp_layers() const override { return std::ssize(mtp_layers_); }
  /// Unless there are experts, whose rows the host counts, or states of slots.
  bool repeats_passes() const override { return routed() == 0 && config_.delta_layers.empty(); }

  /// By the convention `model`: 6 N + 6 L C T. N counts the active parameters without the input
  /// embeddings; a tied output layer counts. The second term is the causal half of attention over
  /// all previous positions, even with a window; C is heads · head_dim there. Gated delta nets and
  /// recomputation are not counted. Frozen weights have no gradient, so they count as 4 N; the
  /// adapters' own few flops are left out.
  double flops_per_token(std::int64_t seq_len) override;
  double block_flops_per_token(std::int64_t seq_len) override;
  std::string describe() const override;

 protected:
  /// The parts around the blocks.
  struct Ends {
    Embedding::Names embedding;
    std::int64_t positions = 0;         ///< that the embedding has vectors for; 0: none
    std::int64_t unused_positions = 0;  ///< vectors before those, which no token has
    std::string norm;                   ///< the final norm's name
    Norm::Options norm_options;
  };

  /// config must be resolved: no size is 0. Throws UsageError if the grid cannot cut a size.
  Decoder(const ModelConfig& config, const Grid& grid, const Ends& ends);

  /// Adds the next block. Throws UsageError if a target of the adapters is none of its layers.
  void add(std::unique_ptr<DecoderBlock> block);
  /// Adds the next layer that predicts further tokens.
  void add_mtp(std::unique_ptr<MtpLayer> layer);
  /// The number of blocks so far that have experts.
  std::int64_t routed() const { return std::ssize(routers_.biases); }

  /// Called before the embedding of each pass.
  virtual void prepare(const Context& ctx, const Tokens& tokens);

 private:
  Var hidden(const Context& ctx, const Tokens& tokens) override;
  /// The embeddings of each of these tokens.
  std::vector<Var> embed(const Context& ctx, const std::vector<Tokens>& all);
  Var through_blocks(const Context& ctx, const Tokens& tokens, Var x);
  void count_router(const DecoderBlock& block);
  float embedding_scale(const Context& ctx) const;
  Head head() override;
  /// Active parameters of all blocks, without adapters.
  std::int64_t parameters_in_blocks() const;
  void check_adapters();
  /// L C T, the columns of keys that a token is multiplied with, on average twice.
  double attention_columns(std::int64_t seq_len) const;

  ModelConfig config_;
  ParameterGroup embedding_group_;
  std::optional<CodedGroups> embedding_codes_;
  Adapters embedding_adapters_;
  Embedding embedding_;
  std::optional<LayerInputs> layer_inputs_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  std::vector<std::unique_ptr<MtpLayer>> mtp_layers_;
  ParameterGroup head_group_;
  std::optional<CodedGroups> head_codes_;
  Adapters head_adapters_;
  Norm norm_;
  const Parameter& output_;  // the embedding's table if tied
  CrossEntropy cross_entropy_;
  Routers routers_;
};

}  // namespace axonn
