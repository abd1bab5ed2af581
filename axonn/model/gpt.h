#pragma once

#include <string>

#include "axonn/model/config.h"
#include "axonn/model/decoder.h"
#include "axonn/nn/attention.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/norm.h"
#include "axonn/nn/pointwise.h"

namespace axonn {

/// One transformer block: x + attention(norm(x)), then x + MLP(norm(x)).
class GptBlock : public DecoderBlock {
 public:
  GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name);

  Var operator()(const Context& ctx, Var x) const override;

 private:
  Norm norm1_;
  Linear qkv_, project_;
  Norm norm2_;
  Linear up_, down_;
};

/// GPT-2: learned positions, pre-LayerNorm, GELU, logits tied to the embedding or not; key-value
/// heads may be fewer than query heads. Parameters have the names of Hugging Face's GPT-2.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
class Gpt : public Decoder {
 public:
  /// config must be resolved: no size is 0. Throws UsageError if the grid cannot cut a size.
  Gpt(const ModelConfig& config, const Grid& grid);
};

}  // namespace axonn
