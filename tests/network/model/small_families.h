// Small models of GPT-2, OPT and every variant of the Llama family.
#pragma once

#include <cmath>

#include "tests/support/one_rank_model.h"

namespace axonn::testing_support {

inline ModelConfig small_gpt() {
  return {.layers = 2, .hidden = 24, .heads = 6, .kv_heads = 6, .vocab = 31, .norm_eps = 1e-3};
}

inline ModelConfig small_gpt_of_groups() {
  ModelConfig config = small_gpt();
  config.kv_heads = 2;
  config.tied = false;
  config.bias = false;
  return config;
}

inline ModelConfig small_opt() {
  ModelConfig config = small_gpt();
  config.family = ModelFamily::opt;
  return config;
}

inline ModelConfig small_opt_of_groups() {
  ModelConfig config = small_gpt_of_groups();
  config.family = ModelFamily::opt;
  return config;
}

inline ModelConfig small_llama() {
  return {.family = ModelFamily::llama,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn = 40,
          .vocab = 31,
          .tied = false,
          .norm_eps = 1e-3};
}

inline ModelConfig small_mup() {
  ModelConfig config = small_llama();
  config.mup_base = 8;
  config.mup_base_head_dim = 9;
  return config;
}

inline ModelConfig small_llama31() {
  ModelConfig config = small_llama();
  config.rope_theta = 50;
  config.rope.kind = RopeScalingKind::llama3;
  config.rope.original_positions = 12;
  return config;
}

inline ModelConfig small_mistral() {
  ModelConfig config = small_llama();
  config.window = 4;
  config.head_dim = 10;
  return config;
}

inline ModelConfig small_qwen2() {
  ModelConfig config = small_llama();
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

inline ModelConfig small_qwen3() {
  ModelConfig config = small_llama();
  config.qk_norm = QkNormKind::head;
  config.kv_heads = 1;
  return config;
}

inline ModelConfig small_apertus() {
  ModelConfig config = small_llama31();
  config.qk_norm = QkNormKind::head;
  config.activation = MlpKind::xielu;
  return config;
}

inline ModelConfig small_mixtral() {
  ModelConfig config = small_llama();
  config.experts = 4;
  config.experts_per_token = 2;
  return config;
}

inline ModelConfig small_qwen3_moe() {
  ModelConfig config = small_qwen3();
  config.layers = 4;
  config.experts = 5;
  config.experts_per_token = 3;
  config.expert_ffn = 16;
  config.expert_step = 2;
  config.dense_layers = {3};
  return config;
}

inline ModelConfig small_olmoe() {
  ModelConfig config = small_mixtral();
  config.qk_norm = QkNormKind::width;
  config.expert_norm = false;
  return config;
}

inline ModelConfig small_smollm3() {
  ModelConfig config = small_llama();
  config.layers = 4;
  config.nope_layers = {1, 2};
  config.tied = true;
  return config;
}

inline ModelConfig small_ministral() {
  ModelConfig config = small_llama();
  config.layers = 3;
  config.window = 4;
  config.full_layers = {1};
  return config;
}

inline ModelConfig small_olmo2() {
  ModelConfig config = small_llama();
  config.block_norm = BlockNormKind::output;
  config.qk_norm = QkNormKind::width;
  return config;
}

inline ModelConfig small_olmo3() {
  ModelConfig config = small_olmo2();
  config.layers = 3;
  config.head_dim = 12;
  config.window = 4;
  config.full_layers = {2};
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 32,
                 .beta_fast = 3,
                 .attention_factor = 1.2};
  config.window_rope_scaling = false;
  return config;
}

/// Sequences are longer than original_positions.
inline ModelConfig small_phi3() {
  ModelConfig config = small_llama();
  config.head_dim = 8;
  config.partial_rotary_factor = 0.75;
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::longrope,
                 .factor = 4,
                 .original_positions = OneRankModel::kPositions - 1,
                 .short_factors = {1, 1.5, 2},
                 .long_factors = {1.25, 2, 4}};
  return config;
}

/// They are as long, no longer; layers with the window have no scaling.
inline ModelConfig small_phi3_of_short_sequences() {
  ModelConfig config = small_phi3();
  config.rope.original_positions = OneRankModel::kPositions;
  config.rope.attention_factor = 1.3;
  config.window = 4;
  config.full_layers = {1};
  config.window_rope_scaling = false;
  return config;
}

inline ModelConfig small_seed_oss() {
  ModelConfig config = small_llama();
  config.head_dim = 6;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  return config;
}

inline ModelConfig small_with_biases_of_xielu() {
  ModelConfig config = small_apertus();
  config.out_bias = config.mlp_bias = true;
  return config;
}

/// The options of those together: a base of the window's own, a ramp that is not rounded, layers
/// without rotary positions among those with the window, norms of experts' output.
inline ModelConfig small_with_kinds_of_layers() {
  ModelConfig config = small_olmo3();
  config.layers = 4;
  config.nope_layers = {1, 3};
  config.rope.attention_factor = 0;
  config.rope.truncate = false;
  config.window_rope_theta = 50;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_step = 2;
  return config;
}

inline ModelConfig small_granite() {
  ModelConfig config = small_llama();
  config.embedding_scale = 3;
  config.attention_scale = 0.2;
  config.residual_scale = 0.5;
  config.logit_scale = 0.7;
  return config;
}

inline ModelConfig small_glm4() {
  ModelConfig config = small_llama();
  config.head_dim = 8;
  config.qkv_bias = true;
  config.block_norm = BlockNormKind::both;
  config.rope_pairs = RopePairs::neighbours;
  config.partial_rotary_factor = 0.5;
  return config;
}

inline ModelConfig small_hunyuan() {
  ModelConfig config = small_llama();
  config.qk_norm = QkNormKind::rotated_head;
  return config;
}

/// Queries grow three times within a sequence.
inline ModelConfig small_ministral3() {
  ModelConfig config = small_llama();
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = (OneRankModel::kPositions + 2) / 3,
                 .beta_fast = 3};
  config.query_growth = 0.4;
  return config;
}

inline ModelConfig small_gemma3() {
  ModelConfig config = small_llama();
  config.layers = 3;
  config.tied = true;
  config.activation = MlpKind::geglu;
  config.qk_norm = QkNormKind::head;
  config.block_norm = BlockNormKind::both;
  config.norm_plus_one = true;
  config.window = 4;
  config.full_layers = {2};
  config.rope_theta = 500;
  config.window_rope_theta = 50;
  config.rope = {.kind = RopeScalingKind::linear, .factor = 4};
  config.window_rope_scaling = false;
  config.embedding_scale = std::sqrt(24.0);
  config.attention_scale = 0.3;
  return config;
}

inline ModelConfig small_gemma2() {
  ModelConfig config = small_gemma3();
  config.qk_norm = QkNormKind::none;
  config.rope = {};
  config.window_rope_theta = 0;
  config.window_rope_scaling = true;
  config.score_cap = 0.4;
  config.logit_cap = 0.8;
  return config;
}

inline ModelConfig small_gemma4() {
  ModelConfig config = small_gemma3();
  config.norm_plus_one = false;
  config.head_dim = 6;
  config.full_head_dim = 8;
  config.full_kv_heads = 3;
  config.full_values_are_keys = config.value_norm = config.layer_factor = true;
  config.attention_scale = 1;
  config.logit_cap = 0.8;
  config.rope = {.kind = RopeScalingKind::proportional, .share = 0.5};
  return config;
}

/// Inputs of layers; the last three have keys of the first and the second.
inline ModelConfig small_gemma4_of_inputs() {
  ModelConfig config = small_gemma4();
  config.layers = 5;
  config.full_layers = {1, 3};
  config.shared_kv_layers = 3;
  config.double_shared_ffn = true;
  config.layer_input = 6;
  return config;
}

inline ModelConfig small_gemma4_moe() {
  ModelConfig config = small_gemma4();
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = 12;
  config.shared_ffn = 20;
  config.expert_block_norms = true;
  return config;
}

inline ModelConfig small_qwen2_moe() {
  ModelConfig config = small_mixtral();
  config.qkv_bias = true;
  config.shared_ffn = 20;
  config.shared_gate = true;
  config.expert_norm = false;
  return config;
}

/// Chunks and queries that grow thrice within a sequence; layers of four kinds.
inline ModelConfig small_llama4() {
  ModelConfig config = small_mixtral();
  config.layers = 4;
  config.rope_pairs = RopePairs::neighbours;
  config.qk_norm = QkNormKind::rotated_plain;
  config.window = 3;
  config.window_chunks = true;
  config.full_layers = config.nope_layers = {2, 3};
  config.nope_query_growth = 0.5;
  config.nope_query_positions = (OneRankModel::kPositions + 3) / 3;
  config.router = RouterKind::sigmoid;
  config.expert_norm = false;
  config.expert_input_scores = true;
  config.expert_ffn = config.shared_ffn = 12;
  config.expert_step = 2;
  return config;
}

/// Queries that grow in heads of two widths: of layers 1 with a window, and 2 and 3 without one.
inline ModelConfig small_llama4_of_two_widths() {
  ModelConfig config = small_llama4();
  config.full_head_dim = 6;
  config.qk_norm = QkNormKind::none;
  config.nope_layers = {1, 2, 3};
  return config;
}

inline ModelConfig small_starcoder2() {
  ModelConfig config = small_seed_oss();
  config.norm = NormKind::layer;
  config.activation = MlpKind::gelu;
  return config;
}

inline ModelConfig small_nemotron() {
  ModelConfig config = small_llama();
  config.norm = NormKind::layer;
  config.norm_plus_one = true;
  config.activation = MlpKind::relu2;
  config.partial_rotary_factor = 0.5;
  return config;
}

inline ModelConfig small_cohere2() {
  ModelConfig config = small_llama();
  config.norm = NormKind::layer_without_bias;
  config.block_norm = BlockNormKind::parallel;
  config.rope_pairs = RopePairs::neighbours;
  config.window = 4;
  config.full_layers = config.nope_layers = {1};
  config.logit_scale = 0.4;
  config.residual_scale = 0.6;
  return config;
}

/// Options of several types together: norms over the width by 1 + weight, longrope on neighbours
/// with queries that grow, an MLP of all tokens beside experts, and factors.
inline ModelConfig small_with_options_together() {
  ModelConfig config = small_phi3();
  config.rope_pairs = RopePairs::neighbours;
  config.partial_rotary_factor = 1;
  config.head_dim = 6;
  config.query_growth = 0.3;
  config.qk_norm = QkNormKind::width;
  config.norm_plus_one = true;
  config.block_norm = BlockNormKind::both;
  config.residual_scale = 1.5;
  config.experts = 4;
  config.experts_per_token = 2;
  config.dense_layers = {0};
  config.shared_ffn = 20;
  return config;
}

inline ModelConfig small_with_sigmoid() {
  ModelConfig config = small_mixtral();
  config.router = RouterKind::sigmoid;
  config.router_scale = 2.5;
  config.router_bias = true;
  return config;
}

/// Experts in groups beside an MLP of all tokens.
inline ModelConfig small_glm4_moe() {
  ModelConfig config = small_with_sigmoid();
  config.layers = 3;
  config.experts = 6;
  config.expert_ffn = 12;
  config.expert_groups = 3;
  config.expert_groups_per_token = 2;
  config.shared_ffn = 20;
  config.dense_layers = {0};
  config.partial_rotary_factor = 0.5;
  return config;
}

/// Biases of the MLPs of layers without experts, and of that beside experts.
inline ModelConfig small_with_biases_beside_experts() {
  ModelConfig config = small_mixtral();
  config.dense_layers = {0};
  config.shared_ffn = 20;
  config.mlp_bias = true;
  return config;
}

/// Layers with the window and without. Gates that reach the limit have a kink there, which central
/// differences do not see.
inline ModelConfig small_gpt_oss() {
  ModelConfig config = small_mixtral();
  config.head_dim = 6;
  config.qkv_bias = config.out_bias = config.expert_bias = config.router_logit_bias = true;
  config.sinks = true;
  config.activation = MlpKind::clamped_swiglu;
  config.swiglu_limit = 3;
  config.window = 4;
  config.full_layers = {1};
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 12,
                 .beta_fast = 3,
                 .truncate = false};
  return config;
}

/// Latent attention whose values are narrower than its keys, and groups chosen by their best one.
inline ModelConfig small_deepseek2() {
  ModelConfig config = small_mixtral();
  config.kv_heads = 6;
  config.kv_lora_rank = 10;
  config.q_lora_rank = 14;
  config.qk_nope_head_dim = 5;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 7;
  config.rope_pairs = RopePairs::neighbours;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 12,
                 .beta_fast = 3,
                 .attention_factor = 0.9};
  config.attention_scale = 0.4;
  config.expert_norm = false;
  config.expert_groups = 2;
  config.expert_group_best = 1;
  config.shared_ffn = 20;
  return config;
}

/// Queries without latents, values wider than keys, biases.
inline ModelConfig small_latent() {
  ModelConfig config = small_llama();
  config.kv_heads = 6;
  config.kv_lora_rank = 10;
  config.qk_nope_head_dim = 3;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 9;
  config.qkv_bias = config.out_bias = true;
  config.layers = 3;
  config.nope_layers = {1};
  return config;
}

/// Gated delta nets of fewer key heads than value heads, and attention with gates.
inline ModelConfig small_qwen3_5() {
  ModelConfig config = small_llama();
  config.layers = 3;
  config.head_dim = 10;
  config.qk_norm = QkNormKind::head;
  config.norm_plus_one = true;
  config.partial_rotary_factor = 0.4;
  config.attention_gate = true;
  config.delta_layers = {0, 2};
  config.delta.key_heads = 2;
  config.delta.value_heads = 6;
  config.delta.key_dim = 5;
  config.delta.value_dim = 7;
  config.delta.taps = 3;
  return config;
}

/// The same with experts, and an MLP beside them with a gate.
inline ModelConfig small_qwen3_next() {
  ModelConfig config = small_qwen3_5();
  config.delta.taps = 6;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = 12;
  config.shared_ffn = 20;
  config.shared_gate = true;
  return config;
}

/// Sinks and the clamped gate without experts.
inline ModelConfig small_with_sinks() {
  ModelConfig config = small_seed_oss();
  config.sinks = true;
  config.activation = MlpKind::clamped_swiglu;
  config.swiglu_limit = 3;
  return config;
}

}  // namespace axonn::testing_support
