#pragma once

#include <memory>
#include <vector>

#include "axonn/model/model.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/loss.h"
#include "axonn/nn/norm.h"

/// One residual MLP: x + down(gelu(up(norm(x)))).
class MlpBlock {
 public:
  MlpBlock(const axonn::Grid& grid, const std::string& name, std::int64_t width);
  axonn::Var operator()(const axonn::Context& ctx, const axonn::Var& x) const;
  axonn::ParameterGroup& parameters() { return group_; }

 private:
  axonn::ParameterGroup group_;
  axonn::LayerNorm norm_;
  axonn::Linear up_, down_;
};

/// Predicts the next byte from the last few bytes: each has its own embedding table, and the sum of
/// the embeddings goes through residual MLPs. No attention, no positions.
/// Source: Bengio et al., "A neural probabilistic language model", 2003.
class Neighbours : public axonn::Model {
 public:
  struct Options {
    std::int64_t width = 96, blocks = 2;
    int context = 4;  ///< number of bytes it sees
  };
  static constexpr std::int64_t kVocab = 256;

  Neighbours(const axonn::Grid& grid, Options options);

  std::vector<axonn::ParameterGroup*> groups() override;
  void loss(const axonn::Context& ctx, const axonn::Tokens& tokens, float scale,
            const axonn::Tensor& total) override;
  axonn::Tensor target_losses(const axonn::Context& ctx, const axonn::Tokens& tokens) override;
  axonn::Tensor next_logits(const axonn::Context& ctx, const axonn::Tokens& tokens,
                            std::span<const std::int64_t> rows) override;
  std::int64_t vocab() const override { return kVocab; }

 private:
  axonn::Var hidden(const axonn::Context& ctx, const axonn::Tokens& tokens) const;

  mutable axonn::ParameterGroup embedding_group_;
  std::vector<axonn::Embedding> embeddings_;  // for the byte itself, the byte before it, ...
  std::vector<std::unique_ptr<MlpBlock>> blocks_;
  axonn::ParameterGroup head_group_;
  axonn::LayerNorm norm_;
  axonn::CrossEntropy cross_entropy_;
};
