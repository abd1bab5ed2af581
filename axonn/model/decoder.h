#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/model/config.h"
#include "axonn/model/language_model.h"
#include "axonn/nn/adapter.h"
#include "axonn/nn/attention.h"

namespace axonn {

/// One block of a Decoder: parameters, and adapters if the config has them.
class DecoderBlock {
 public:
  virtual ~DecoderBlock() = default;
  virtual Var operator()(const Context& ctx, Var x) const = 0;
  ParameterGroup& parameters() { return parameters_; }
  /// Null without adapters.
  ParameterGroup* adapters() { return adapters_.group(); }

 protected:
  DecoderBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
               const Heads& heads)
      : parameters_(name, grid), adapters_(name, grid, config.lora), heads_(heads) {}

  /// Freezes the parameters if there are adapters. To be called when all layers have been made.
  /// Throws UsageError if a target of the adapters is no layer.
  void finish();

  ParameterGroup parameters_;
  Adapters adapters_;
  const Heads heads_;
};

/// The common part of all families: an embedding, blocks one after another, a final norm, and an
/// output layer, tied to the embedding or not. A family adds its blocks and parameter names.
class Decoder : public LanguageModel {
 public:
  std::vector<ParameterGroup*> groups() override;
  std::int64_t vocab() const override { return config_.vocab; }
  std::string describe() const override;

 protected:
  struct Ends {
    Embedding::Names embedding;  ///< positions: "" without learned positions
    std::string norm;            ///< name of the final norm
    Norm::Options norm_options;
  };

  /// config must be resolved: no size is 0. Throws UsageError if the grid cannot cut a size.
  Decoder(const ModelConfig& config, const Grid& grid, const Ends& ends);

  /// Appends a block; call in the order of the forward pass.
  void add(std::unique_ptr<DecoderBlock> block) { blocks_.push_back(std::move(block)); }

  /// Called before each forward pass, with the description of its rows.
  virtual void prepare(const Context& ctx, const Rows& rows) {
    (void)ctx;
    (void)rows;
  }

 private:
  Var hidden(const Context& ctx, const Tokens& tokens) override;
  Head head() override;

  ModelConfig config_;
  ParameterGroup embedding_group_;
  Embedding embedding_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  ParameterGroup head_group_;
  Norm norm_;
  const Parameter& output_;  // the embedding's table if tied
  CrossEntropy cross_entropy_;
};

/// The standard deviation of initial weights that project into the residual stream:
/// init_std / sqrt(2 · layers), as in GPT-2, so that the stream's variance does not grow with
/// depth.
double residual_init_std(const ModelConfig& config);

}  // namespace axonn
