#pragma once

#include <optional>
#include <string>

#include "axonn/model/config.h"
#include "axonn/model/decoder.h"
#include "axonn/nn/attention.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/norm.h"
#include "axonn/nn/pointwise.h"
#include "axonn/nn/rope.h"

namespace axonn {

/// One transformer block: x + attention(norm(x)), then x + MLP(norm(x)).
class LlamaBlock : public DecoderBlock {
 public:
  /// `rope` is shared by all blocks of the model, and must outlive them.
  LlamaBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
             const Rope& rope);

  Var operator()(const Context& ctx, Var x) const override;

 private:
  const Rope& rope_;
  Norm norm1_;
  Linear qkv_;
  std::optional<QkNorm> qk_norm_;
  Linear project_;
  Norm norm2_;
  Linear gate_up_, down_;
};

/// Llama and similar models: rotary positions, pre-RMSNorm, SwiGLU, no biases. Options add biases
/// of queries, keys and values (Qwen2), norms of query and key heads (Qwen3), a window (Mistral)
/// and scaled frequencies for longer sequences (Llama 3.1). Parameters have the names that Hugging
/// Face's models of these families share.
/// Sources: Touvron et al., "Llama 2", 2023; Grattafiori et al., "The Llama 3 herd of models",
/// 2024; Jiang et al., "Mistral 7B", 2023; the technical reports of Qwen2 and Qwen3.
class Llama : public Decoder {
 public:
  /// config must be resolved: no size is 0. Throws UsageError if the grid cannot cut a size.
  Llama(const ModelConfig& config, const Grid& grid);

 private:
  void prepare(const Context& ctx, const Rows& rows) override;

  Rope rope_;
};

}  // namespace axonn
