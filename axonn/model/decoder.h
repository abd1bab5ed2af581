#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/model/config.h"
#include "axonn/model/model.h"
#include "axonn/parallel/adapter.h"
#include "axonn/parallel/loss.h"
#include "axonn/parallel/norm.h"

namespace axonn {

/// One block of a Decoder.
class DecoderBlock {
 public:
  virtual ~DecoderBlock() = default;
  virtual Var operator()(const Context& ctx, Var x) const = 0;
  virtual ParameterGroup& parameters() = 0;
  /// Null where it has none.
  virtual ParameterGroup* adapters() = 0;
};

/// What all families here have in common: an embedding, blocks one after another, a last norm, and
/// logits that are tied to the embedding or not. A family brings its blocks and its names.
class Decoder : public Model {
 public:
  std::vector<ParameterGroup*> groups() override;
  void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) override;
  Tensor target_losses(const Context& ctx, const Tokens& tokens) override;
  Tensor next_logits(const Context& ctx, const Tokens& tokens,
                     std::span<const std::int64_t> rows) override;
  std::int64_t vocab() const override { return config_.vocab; }

 protected:
  struct Ends {
    Embedding::Names embedding;  ///< positions: "" for none
    std::string norm;            ///< of the last norm
    LayerNorm::Options norm_options;
  };

  /// config is resolved: no size is 0. Errors: UsageError where the grid cannot cut a size.
  Decoder(const ModelConfig& config, const Grid& grid, const Ends& ends);

  /// In the order of the forward pass.
  void add(std::unique_ptr<DecoderBlock> block) { blocks_.push_back(std::move(block)); }

  /// Called before each forward pass over rows such as these.
  virtual void prepare(const Context& ctx, const Rows& rows) {
    (void)ctx;
    (void)rows;
  }

 private:
  Var hidden(const Context& ctx, const Tokens& tokens);
  void head(const Context& ctx, const Var& x,
            const std::function<void(const Context&, const Var&)>& f);

  ModelConfig config_;
  ParameterGroup embedding_group_;
  Embedding embedding_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  ParameterGroup head_group_;
  LayerNorm norm_;
  const Parameter& output_;  // the embedding's table where tied
  CrossEntropy cross_entropy_;
};

/// What config.lora says of the adapters of a block.
Adapters::Options adapter_options(const ModelConfig& config);

/// The standard deviation of initial weights that project into the residual stream: smaller with
/// depth, as in GPT-2, so that its variance does not grow with it.
double residual_init_std(const ModelConfig& config);

}  // namespace axonn
