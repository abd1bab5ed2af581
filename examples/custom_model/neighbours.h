#pragma once

#include <memory>
#include <vector>

#include <axonn/axonn.h>

#include "layer_scale.h"

/// One residual MLP: x + scale(down(gelu(up(norm(x))))).
class MlpBlock {
 public:
  MlpBlock(const axonn::Grid& grid, const std::string& name, std::int64_t width);
  axonn::Var operator()(const axonn::Context& ctx, const axonn::Var& x) const;
  axonn::ParameterGroup& parameters() { return group_; }

 private:
  axonn::ParameterGroup group_;
  axonn::Norm norm_;
  axonn::Linear up_, down_;
  LayerScale scale_;
};

/// Predicts the next token from the last few tokens: each has its own embedding table, and the sum
/// of the embeddings goes through residual MLPs. No attention, no positions. Hyperparameters:
/// model.layers, model.hidden, model.vocab and neighbours.context.
/// Source: Bengio et al., "A neural probabilistic language model", 2003.
class Neighbours : public axonn::LanguageModel {
 public:
  Neighbours(const axonn::ModelConfig& config, const axonn::Grid& grid);

  std::vector<axonn::ParameterGroup*> groups() override;
  std::int64_t vocab() const override { return config_.vocab; }
  bool caches() const override { return false; }
  double flops_per_token(std::int64_t seq_len) override;
  std::string describe() const override;

 private:
  axonn::Var hidden(const axonn::Context& ctx, const axonn::Tokens& tokens) override;
  Head head() override { return {norm_, cross_entropy_, {&head_group_}}; }

  axonn::ModelConfig config_;
  axonn::ParameterGroup embedding_group_;
  std::vector<axonn::Embedding> embeddings_;  // for the token itself, the one before it, ...
  std::vector<std::unique_ptr<MlpBlock>> blocks_;
  axonn::ParameterGroup head_group_;
  axonn::Norm norm_;
  axonn::CrossEntropy cross_entropy_;
};
