#pragma once

#include <string>
#include <vector>

#include "axonn/network/model/decoder.h"

namespace axonn {

/// The parameters of a GptBlock by their names within the block, and what blocks of this form
/// differ in.
struct GptBlockForm {
  std::string norm1, qkv, project, norm2, up, down;
  /// Queries, keys and values, if these are parameters of their own: qkv.q_proj and so on.
  std::vector<std::string> parts = {};
  bool norm_bias = true;  ///< of its two norms
  bool relu = false;      ///< the MLP has ReLU in place of GELU
};

/// x + attention(norm1(x)), and then x + down(gelu(up(norm2(x)))), of GPT-2 and OPT.
class GptBlock final : public DecoderBlock {
 public:
  /// Products have biases if config.bias says so.
  GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
           const GptBlockForm& form);

  Var operator()(const Context& ctx, Var x) const override;

 private:
  bool relu_;
  Norm norm1_;
  Linear qkv_, project_;
  Norm norm2_;
  Linear up_, down_;
};

/// LayerNorm over the model's width.
Norm::Options layer_norm_of(const ModelConfig& config, bool bias);

/// Throws UsageError for options of the family llama that make another block.
void need_gpt_block(const ModelConfig& config);

}  // namespace axonn
