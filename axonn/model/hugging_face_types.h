#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/model/config.h"

namespace axonn {

/// A model_type of Hugging Face's config.json that the llama family implements: what distinguishes
/// it from Llama, and the values that transformers gives to keys that a file does not have.
struct LlamaType {
  std::string_view name, architecture;
  bool qkv_bias = false;
  QkNormKind qk_norm = QkNormKind::none;
  double norm_eps = 1e-6, rope_theta = 10000;
  std::int64_t head_dim = 0;                        ///< 0: hidden_size / num_attention_heads
  std::int64_t experts = 0, experts_per_token = 0;  ///< 0: the type has no experts
  std::int64_t expert_ffn = 0;  ///< moe_intermediate_size; 0: experts have intermediate_size
  bool normalises = false;      ///< always; else if norm_topk_prob is true
  double balance = 0;           ///< router_aux_loss_coef
  MlpKind activation = MlpKind::swiglu;

  /// The value of hidden_act.
  std::string_view hidden_act() const { return activation == MlpKind::xielu ? "xielu" : "silu"; }
  /// Whether the experts are those of Mixtral, whose tensors have other names.
  bool is_mixtral() const { return experts > 0 && qk_norm == QkNormKind::none; }
  bool is_qwen() const { return name.starts_with("qwen"); }
};

inline constexpr std::array<LlamaType, 8> kLlamaTypes = {{
    {.name = "llama", .architecture = "LlamaForCausalLM"},
    {.name = "mistral", .architecture = "MistralForCausalLM"},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .qkv_bias = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = QkNormKind::head,
     .head_dim = 128},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .experts = 8,
     .experts_per_token = 2,
     .normalises = true,
     .balance = 0.001},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .qk_norm = QkNormKind::head,
     .experts = 128,
     .experts_per_token = 8,
     .expert_ffn = 768,
     .balance = 0.001},
    {.name = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .qk_norm = QkNormKind::width,
     .norm_eps = 1e-5,
     .experts = 64,
     .experts_per_token = 8,
     .balance = 0.01},
    {.name = "apertus",
     .architecture = "ApertusForCausalLM",
     .qk_norm = QkNormKind::head,
     .norm_eps = 1e-5,
     .rope_theta = 12e6,
     .activation = MlpKind::xielu},
}};

}  // namespace axonn
