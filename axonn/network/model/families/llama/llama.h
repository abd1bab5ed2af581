#pragma once

#include "axonn/network/model/families/family.h"

namespace axonn {

/// Llama and the models that followed it: rotary positions, RMSNorm, SwiGLU, no biases. Options add
/// biases of queries, keys and values (Qwen2), norms of query and key heads (Qwen3) or of their
/// whole width (OLMoE), a window (Mistral), of some layers alone (Ministral), layers without rotary
/// positions (SmolLM3), norms at the output of attention and MLP (OLMo 2), scaled frequencies for
/// longer sequences (Llama 3.1), of layers without the window alone (OLMo 3), experts (Mixtral) and
/// an MLP without a gate (Apertus).
///
/// Sources: Touvron et al., "Llama 2", 2023; Grattafiori et al., "The Llama 3 herd of models",
/// 2024; Jiang et al., "Mistral 7B", 2023; the technical reports of Qwen2, Qwen3 and Apertus (arXiv
/// 2509.14233); Walsh et al., "2 OLMo 2 Furious", 2025; Yang et al., "RoPE to NoPE and back again",
/// 2025.
extern const Family kLlamaFamily;

/// Throws UsageError for values that do not fit one another; see Family::validate.
void validate_llama(const ModelConfig& model);
/// Makes this rank's part of a model; see Family::make.
std::unique_ptr<Model> make_llama(const ModelConfig& config, const Grid& grid);

}  // namespace axonn
