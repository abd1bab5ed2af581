#pragma once

// The types of models that GGUF files hold beside those of 2024, as changes of a small Llama.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "axonn/network/model/config.h"

namespace axonn::test {

using Change = std::function<void(ModelConfig&)>;

inline void use_experts(ModelConfig& model) {
  model.experts = 4;
  model.experts_per_token = 2;
  model.expert_ffn = 16;
}

inline void use_latents(ModelConfig& model) {
  use_experts(model);
  model.kv_heads = model.heads;
  model.head_dim = 0;
  model.kv_lora_rank = 16;
  model.q_lora_rank = 24;
  model.qk_nope_head_dim = 8;
  model.qk_rope_head_dim = 4;
  model.v_head_dim = 6;
  model.rope_pairs = RopePairs::neighbours;
  model.norm_eps = 1e-6;
  model.shared_ffn = 32;
  model.dense_layers = {0};
}

inline void use_delta_nets(ModelConfig& model) {
  model.qk_norm = QkNormKind::head;
  model.norm_plus_one = model.attention_gate = true;
  model.partial_rotary_factor = 0.5;
  model.delta_layers = {0};
  model.delta = {.key_heads = 2, .value_heads = 6, .key_dim = 8, .value_dim = 8, .taps = 3};
}

inline void use_gemma(ModelConfig& model) {
  model.tied = true;
  model.block_norm = BlockNormKind::both;
  model.activation = MlpKind::geglu;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  model.window = 4;
  model.full_layers = {1};
}

inline void use_gemma4(ModelConfig& model) {
  use_gemma(model);
  model.type = "gemma4_text";
  model.layers = 4;
  model.full_layers = {1, 3};
  model.qk_norm = QkNormKind::head;
  model.attention_scale = 1;
  model.value_norm = model.layer_factor = true;
  model.logit_cap = 30;
  model.window_rope_theta = 100;
  model.rope = {.kind = RopeScalingKind::proportional, .share = 0.5};
  model.window_rope_scaling = false;
  model.full_head_dim = 12;
}

using TypesInGguf = std::vector<std::pair<const char*, Change>>;
using ChangedModel = ModelConfig&;

inline TypesInGguf gemmas() {
  return {
      {"gemma2",
       [](ChangedModel m) {
         use_gemma(m);
         m.type = "gemma2";
         m.norm_plus_one = true;
         m.score_cap = 50;
         m.logit_cap = 30;
       }},
      {"gemma3_text",
       [](ChangedModel m) {
         use_gemma(m);
         m.norm_plus_one = true;
         m.qk_norm = QkNormKind::head;
         m.layers = 6;
         m.full_layers = {5};
         m.rope = {.kind = RopeScalingKind::linear, .factor = 8};
         m.rope_theta = 5000;
         m.window_rope_theta = 10000;
         m.window_rope_scaling = false;
       }},
      {"gemma4_text",
       [](ChangedModel m) {
         use_gemma4(m);
         m.layer_input = 6;
         m.shared_kv_layers = 2;
         m.double_shared_ffn = true;
       }},
      {"gemma4_text with experts",
       [](ChangedModel m) {
         use_gemma4(m);
         use_experts(m);
         m.full_kv_heads = 2;
         m.full_values_are_keys = m.expert_block_norms = true;
         m.shared_ffn = m.ffn;
       }},
  };
}

inline TypesInGguf dense_types() {
  return {
      {"gpt2",
       [](ChangedModel m) {
         m = {.family = ModelFamily::gpt,
              .layers = 2,
              .hidden = 64,
              .heads = 8,
              .vocab = 256,
              .positions = 8};
       }},
      {"granite",
       [](ChangedModel m) {
         m.embedding_scale = 6;
         m.residual_scale = 0.5;
         m.logit_scale = 0.25;
         m.attention_scale = 0.2;
       }},
      {"cohere2",
       [](ChangedModel m) {
         m.tied = true;
         m.layers = 4;
         m.norm = NormKind::layer_without_bias;
         m.block_norm = BlockNormKind::parallel;
         m.rope_pairs = RopePairs::neighbours;
         m.window = 4;
         m.full_layers = m.nope_layers = {3};
         m.logit_scale = 0.25;
       }},
      {"exaone4",
       [](ChangedModel m) {
         m.block_norm = BlockNormKind::output;
         m.qk_norm = QkNormKind::head;
       }},
      {"apertus",
       [](ChangedModel m) {
         m.activation = MlpKind::xielu;
         m.qk_norm = QkNormKind::head;
       }},
      {"olmo2",
       [](ChangedModel m) {
         m.block_norm = BlockNormKind::output;
         m.qk_norm = QkNormKind::width;
       }},
      {"smollm3",
       [](ChangedModel m) {
         m.layers = 4;
         m.nope_layers = {3};
       }},
      {"seed_oss", [](ChangedModel m) { m.qkv_bias = m.out_bias = true; }},
  };
}

inline TypesInGguf more_dense_types() {
  return {
      {"starcoder2",
       [](ChangedModel m) {
         m.norm = NormKind::layer;
         m.activation = MlpKind::gelu;
         m.qkv_bias = m.out_bias = m.mlp_bias = true;
       }},
      {"nemotron",
       [](ChangedModel m) {
         m.norm = NormKind::layer;
         m.activation = MlpKind::relu2;
         m.norm_plus_one = true;
         m.partial_rotary_factor = 0.5;
       }},
      {"ernie4_5", [](ChangedModel m) { m.rope_pairs = RopePairs::neighbours; }},
      {"hunyuan_v1_dense", [](ChangedModel m) { m.qk_norm = QkNormKind::rotated_head; }},
      {"glm4",
       [](ChangedModel m) {
         m.block_norm = BlockNormKind::both;
         m.rope_pairs = RopePairs::neighbours;
         m.partial_rotary_factor = 0.5;
         m.qkv_bias = true;
       }},
      {"ministral3",
       [](ChangedModel m) {
         m.query_growth = 0.4;
         m.rope = {.kind = RopeScalingKind::yarn,
                   .factor = 4,
                   .original_positions = 4,
                   .beta_fast = 8,
                   .attention_factor = 1};
       }},
  };
}

inline TypesInGguf mixtures() {
  return {
      {"granitemoe",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "granitemoe";
         m.residual_scale = 0.5;
       }},
      {"ernie4_5_moe",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "ernie4_5_moe";
         m.rope_pairs = RopePairs::neighbours;
         m.shared_ffn = 32;
         m.dense_layers = {0};
         m.router_bias = true;
       }},
      {"glm4_moe",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "glm4_moe";
         m.router = RouterKind::sigmoid;
         m.router_bias = m.qkv_bias = true;
         m.qk_norm = QkNormKind::head;
         m.router_scale = 1.5;
         m.shared_ffn = 32;
         m.dense_layers = {0};
         m.partial_rotary_factor = 0.5;
       }},
      {"minimax_m2",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "minimax_m2";
         m.qk_norm = QkNormKind::width;
         m.router = RouterKind::sigmoid;
         m.router_bias = true;
         m.partial_rotary_factor = 0.5;
       }},
      {"qwen2_moe",
       [](ChangedModel m) {
         use_experts(m);
         m.qkv_bias = m.shared_gate = true;
         m.shared_ffn = 24;
         m.expert_norm = false;
       }},
  };
}

inline TypesInGguf more_mixtures() {
  return {
      {"llama4_text",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "llama4_text";
         m.layers = 4;
         m.rope_pairs = RopePairs::neighbours;
         m.qk_norm = QkNormKind::rotated_plain;
         m.window = 8192;
         m.window_chunks = true;
         m.full_layers = m.nope_layers = {3};
         m.nope_query_growth = 0.1;
         m.router = RouterKind::sigmoid;
         m.expert_norm = false;
         m.expert_input_scores = true;
         m.experts_per_token = 1;
         m.shared_ffn = m.expert_ffn;
         m.expert_step = 2;
       }},
      {"gpt_oss",
       [](ChangedModel m) {
         use_experts(m);
         m.type = "gpt_oss";
         m.qkv_bias = m.out_bias = m.sinks = true;
         m.window = 4;
         m.full_layers = {1};
         m.activation = MlpKind::clamped_swiglu;
         m.router_logit_bias = m.expert_bias = true;
         m.rope = {.kind = RopeScalingKind::yarn,
                   .factor = 4,
                   .original_positions = 4,
                   .truncate = false};
       }},
  };
}

inline TypesInGguf latent_types() {
  return {
      {"deepseek_v2",
       [](ChangedModel m) {
         use_latents(m);
         m.type = "deepseek_v2";
         m.expert_norm = false;
         m.expert_group_best = 1;
         m.router_scale = 16;
       }},
      {"deepseek_v3",
       [](ChangedModel m) {
         use_latents(m);
         m.type = "deepseek_v3";
         m.router = RouterKind::sigmoid;
         m.router_bias = true;
         m.router_scale = 2.5;
         m.expert_groups = 2;
         m.rope = {.kind = RopeScalingKind::yarn,
                   .factor = 4,
                   .original_positions = 4,
                   .attention_factor = 1};
         const double root = 0.1 * 0.5 * std::log(4) + 1;
         m.attention_scale = root * root / std::sqrt(12);
       }},
  };
}

inline TypesInGguf delta_types() {
  return {
      {"qwen3_5_text", use_delta_nets},
      {"qwen3_5_moe_text",
       [](ChangedModel m) {
         use_delta_nets(m);
         use_experts(m);
         m.type = "qwen3_5_moe_text";
         m.shared_ffn = 24;
         m.shared_gate = true;
       }},
      {"qwen3_next",
       [](ChangedModel m) {
         use_delta_nets(m);
         use_experts(m);
         m.type = "qwen3_next";
         m.shared_ffn = 24;
         m.shared_gate = true;
       }},
  };
}

inline TypesInGguf types_in_gguf() {
  TypesInGguf all;
  for (const auto& some : {gemmas(), dense_types(), more_dense_types(), mixtures(), more_mixtures(),
                           latent_types(), delta_types()})
    std::ranges::copy(some, std::back_inserter(all));
  return all;
}

}  // namespace axonn::test
