#pragma once

#include <memory>
#include <vector>

#include "axonn/model/language_model.h"
#include "axonn/nn/linear.h"

/// One residual MLP: x + down(gelu(up(norm(x)))).
class MlpBlock {
 public:
  MlpBlock(const axonn::Grid& grid, const std::string& name, std::int64_t width);
  axonn::Var operator()(const axonn::Context& ctx, const axonn::Var& x) const;
  axonn::ParameterGroup& parameters() { return group_; }

 private:
  axonn::ParameterGroup group_;
  axonn::Norm norm_;
  axonn::Linear up_, down_;
};

/// Predicts the next byte from the last few bytes: each has its own embedding table, and the sum of
/// the embeddings goes through residual MLPs. No attention, no positions.
/// Source: Bengio et al., "A neural probabilistic language model", 2003.
class Neighbours : public axonn::LanguageModel {
 public:
  struct Options {
    std::int64_t width = 96, blocks = 2;
    int context = 4;  ///< number of bytes it sees
  };
  static constexpr std::int64_t kVocab = 256;

  Neighbours(const axonn::Grid& grid, Options options);

  std::vector<axonn::ParameterGroup*> groups() override;
  std::int64_t vocab() const override { return kVocab; }

 private:
  axonn::Var hidden(const axonn::Context& ctx, const axonn::Tokens& tokens) override;
  Head head() override { return {norm_, cross_entropy_, {&head_group_}}; }

  axonn::ParameterGroup embedding_group_;
  std::vector<axonn::Embedding> embeddings_;  // for the byte itself, the byte before it, ...
  std::vector<std::unique_ptr<MlpBlock>> blocks_;
  axonn::ParameterGroup head_group_;
  axonn::Norm norm_;
  axonn::CrossEntropy cross_entropy_;
};
