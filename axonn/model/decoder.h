#pragma once

#include <memory>

#include "axonn/model/model.h"

namespace axonn {

/// Makes this rank's part of a model of this library: an embedding, blocks one after another, a
/// final norm, and an output layer, tied to the embedding or not. A block computes
/// x + attention(norm(x)), then x + MLP(norm(x)). Parameters have the names of Hugging Face's
/// models.
///
///   gpt    GPT-2: learned positions, LayerNorm, GELU; key-value heads may be fewer than query
///          heads
///   llama  rotary positions, RMSNorm, SwiGLU, no biases. Options add biases of queries, keys and
///          values (Qwen2), norms of query and key heads (Qwen3), a window (Mistral), scaled
///          frequencies for longer sequences (Llama 3.1) and an MLP without a gate (Apertus)
///
/// config must be resolved: no size is 0. Throws UsageError if the grid cannot cut a size, or a
/// target of the adapters is no layer.
///
/// Sources: Radford et al., "Language models are unsupervised multitask learners", 2019; Touvron et
/// al., "Llama 2", 2023; Grattafiori et al., "The Llama 3 herd of models", 2024; Jiang et al.,
/// "Mistral 7B", 2023; the technical reports of Qwen2, Qwen3 and Apertus (arXiv 2509.14233).
std::unique_ptr<Model> make_decoder(const ModelConfig& config, const Grid& grid);

}  // namespace axonn
