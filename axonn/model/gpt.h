#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/model/config.h"
#include "axonn/model/model.h"
#include "axonn/parallel/attention.h"
#include "axonn/parallel/linear.h"
#include "axonn/parallel/loss.h"
#include "axonn/parallel/norm.h"
#include "axonn/parallel/pointwise.h"

namespace axonn {

/// One transformer block: x + attention(norm(x)), then x + MLP(norm(x)).
class GptBlock {
 public:
  GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name);

  Var operator()(const Context& ctx, Var x) const;
  ParameterGroup& parameters() { return parameters_; }

 private:
  ParameterGroup parameters_;
  Heads heads_;
  LayerNorm norm1_;
  Linear qkv_, project_;
  LayerNorm norm2_;
  Linear up_, down_;
};

/// GPT-2: learned positions, pre-LayerNorm, GELU, logits tied to the embedding or not; key-value
/// heads may be fewer than query heads. Parameters have the names of Hugging Face's GPT-2.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
class Gpt : public Model {
 public:
  /// config is resolved: no size is 0. Errors: UsageError where the grid cannot cut a size.
  Gpt(const ModelConfig& config, const Grid& grid);

  std::vector<ParameterGroup*> groups() override;
  void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) override;
  Tensor next_logits(const Context& ctx, const Tokens& tokens, std::int64_t position) override;
  std::int64_t vocab() const override { return config_.vocab; }

 private:
  Var hidden(const Context& ctx, const Tokens& tokens);
  void head(const Context& ctx, const Var& x,
            const std::function<void(const Context&, const Var&)>& f);

  ModelConfig config_;
  ParameterGroup embedding_group_;
  Embedding embedding_;
  std::vector<std::unique_ptr<GptBlock>> blocks_;
  ParameterGroup head_group_;
  LayerNorm norm_;
  const Parameter& output_;  // the embedding's table where tied
  CrossEntropy cross_entropy_;
};

/// A ModelMaker.
std::unique_ptr<Model> make_gpt(const ModelConfig& config, const Grid& grid);

}  // namespace axonn
