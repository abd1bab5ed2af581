#include "axonn/network/model/families/llama/llama.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/model.h"

namespace axonn {

namespace {

/// Of qk_norm, which was a boolean before OLMoE's norm existed.
constexpr std::array<Spelling, 2> kQkNormSpellings = {{{"false", "none"}, {"true", "head"}}};

void list_llama_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add(
      "activation", model.activation, kMlpKinds,
      {.help = "the MLP: swiglu, gated by silu, as in Llama, geglu, gated by GELU, as in Gemma, or "
               "without a gate xielu, with two learned numbers, as in Apertus, gelu, as in "
               "StarCoder2, or relu2, the square of relu, as in Nemotron; clamped-swiglu: "
               "g sigmoid(a g) (u + 1) of a gate g up to swiglu_limit and u within it, as in "
               "gpt-oss (llama)",
       .also = "hidden_act hidden_activation activation_func mlp_activation xielu swiglu"});
  list.unused_if([&model] {
    const std::string reason = why_unread(kLlamaFamily, model);
    const bool clamped = model.activation == MlpKind::clamped_swiglu;
    return !reason.empty() || clamped ? reason : "model.activation is not clamped-swiglu";
  });
  list.add("swiglu_limit", &model.swiglu_limit,
           {.help = "limit of gate and up with clamped-swiglu", .above = 0});
  list.add("swiglu_alpha", &model.swiglu_alpha,
           {.help = "a, the factor within the sigmoid of clamped-swiglu", .above = 0});
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("sinks", &model.sinks,
           {.help = "whether attention has a learned score of each head beside those of the keys, "
                    "as in gpt-oss (llama)",
            .also = "attention_sinks attn_sinks sink"});
  list.add("qkv_bias", &model.qkv_bias,
           {.help = "whether queries, keys and values have biases, as in Qwen2 (llama)",
            .also = "attention_bias add_qkv_bias use_qkv_bias"});
  list.add("out_bias", &model.out_bias,
           {.help = "whether attention's output projection has a bias, as in Seed-OSS (llama)",
            .also = "attention_out_bias o_bias"});
  list.add("mlp_bias", &model.mlp_bias,
           {.help = "whether the products of dense MLPs have biases (llama)",
            .also = "use_mlp_bias add_mlp_bias"});
  list.add("qk_norm", model.qk_norm, kQkNormKinds,
           {.help = "RMSNorm of queries and keys: of each head, as in Qwen3, over the width of all "
                    "heads, as in OLMoE, of each head after rotary positions, as in HunYuan, or "
                    "that without weights, in layers with rotary positions alone, as in Llama 4 "
                    "(llama)",
            .also = "qk_layernorm use_qk_norm q_norm k_norm",
            .spellings = kQkNormSpellings});
  list.add("norm", model.norm, kNormKinds,
           {.help = "norms: rms, as in Llama, layer, LayerNorm with biases, as in StarCoder2, or "
                    "layer-without-bias, as in Command R (llama)",
            .also = "normalization norm_kind layernorm rmsnorm"});
  list.add(
      "block_norm", model.block_norm, kBlockNormKinds,
      {.help = "where the norms of attention and MLP stand: at their input, as in Llama, at their "
               "output, before it is added to the residual stream, as in OLMo 2, or both, as in "
               "GLM-4 and Gemma; parallel: one norm, whose output both have, as in Command R "
               "(llama)",
       .also = "post_norm norm_after norm_placement reordered_norm sandwich_norm "
               "parallel_attn use_parallel_residual"});
  list.add("norm_plus_one", &model.norm_plus_one,
           {.help = "whether norms multiply by 1 + weight, as in Gemma (llama)",
            .also = "layernorm_zero_centered_gamma apply_layernorm_1p add_unit_offset"});
}

void list_position_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("window", &model.window,
           {.help = "positions that attention sees, its own included, as in Mistral; 0: all "
                    "(llama)",
            .min = 0,
            .also = "sliding_window window_size"});
  list.add("rope_theta", &model.rope_theta,
           {.help = "base of the rotary frequencies (llama)",
            .above = 0,
            .also = "rotary_base rope_base"});
  list.add("partial_rotary_factor", &model.partial_rotary_factor,
           {.help = "the share of a head's columns, the first ones, that rotary positions rotate, "
                    "as in Phi-4-mini (llama)",
            .max = 1,
            .above = 0,
            .also = "rotary_percent rotary_pct rotary_dim rope_percent"});
  list.add(
      "rope_pairs", model.rope_pairs, kRopePairs,
      {.help = "the columns of a head that rotate together: of its two halves, as in Llama, or "
               "neighbours, as in GLM-4 (llama)",
       .also = "rotary_interleaved rope_interleave"});
  list.add("query_growth", &model.query_growth,
           {.help = "queries at position p are multiplied by 1 + this · ln(1 + floor(p / "
                    "rope_original_positions)), as in Ministral 3 (llama)",
            .min = 0,
            .also = "llama_4_scaling_beta attention_temperature attn_scale"});
  list.add("nope_query_growth", &model.nope_query_growth,
           {.help = "queries at position p of layers without rotary positions are multiplied by "
                    "1 + this · ln(1 + floor((p + 1) / nope_query_positions)), as in Llama 4 "
                    "(llama)",
            .min = 0,
            .also = "attn_temperature_tuning"});
  list.unused_if([&model] {
    const std::string reason = why_unread(kLlamaFamily, model);
    return reason.empty() && model.nope_query_growth == 0 ? "model.nope_query_growth is 0" : reason;
  });
  list.add("nope_query_positions", &model.nope_query_positions,
           {.help = "so many positions are one step of nope_query_growth",
            .min = 1,
            .also = "floor_scale"});
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add(
      "rope_scaling", model.rope.kind, kRopeScalingKinds,
      {.help = "scale the rotary frequencies for longer sequences, as Llama 3.1 does, by YaRN, "
               "by longrope, as Phi-3 does, or all alike: linear; proportional: only the first "
               "rope_share of the pairs rotate, as in Gemma 4 (llama)",
       .also = "rope_type rope_parameters use_rope_scaling yarn su"});
  list.add("type", &model.type,
           {.help = "model_type of the Hugging Face folders that are written, phi3 or seed_oss; "
                    "empty: by the other options (llama)"});
  list.add(
      "nope_layers", &model.nope_layers,
      {.help = "layers, counted from 0, without rotary positions (NoPE), as in SmolLM3 (llama)",
       .min = 0,
       .also = "no_rope_layers no_rope_layer_interval nope"});
}

/// What layers without the window have of their own, and values.
void list_full_layer_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("full_head_dim", &model.full_head_dim,
           {.help = "width of a head in layers without the window, as in Gemma 4; 0: head_dim "
                    "(llama)",
            .min = 0,
            .also = "global_head_dim"});
  list.add("full_kv_heads", &model.full_kv_heads,
           {.help = "key-value heads in these layers; 0: kv_heads (llama)",
            .min = 0,
            .also = "num_global_key_value_heads"});
  list.add("full_values_are_keys", &model.full_values_are_keys,
           {.help = "whether these layers' values are their keys, before norms and rotary "
                    "positions (llama)",
            .also = "attention_k_eq_v"});
  list.add("value_norm", &model.value_norm,
           {.help = "whether each head's values are divided by their root mean square, as in "
                    "Gemma 4 (llama)",
            .also = "v_norm"});
  list.add("layer_input", &model.layer_input,
           {.help = "width of an input of each layer, made of the token and its embedding, that a "
                    "gate lets in after the MLP, as in Gemma 4; 0: none (llama)",
            .min = 0,
            .also = "hidden_size_per_layer_input per_layer_embeddings"});
  list.add("shared_kv_layers", &model.shared_kv_layers,
           {.help = "so many last layers have queries alone, and use the keys and values of the "
                    "last layer before them that sees as many positions, as in Gemma 4 (llama)",
            .min = 0,
            .also = "num_kv_shared_layers"});
  list.add("double_shared_ffn", &model.double_shared_ffn,
           {.help = "whether MLPs of these layers are twice as wide (llama)",
            .also = "use_double_wide_mlp"});
  list.add("layer_factor", &model.layer_factor,
           {.help = "whether a constant of each layer, which is not trained, multiplies its "
                    "output, as in Gemma 4 (llama)",
            .also = "layer_scalar"});
}

void list_delta_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("attention_gate", &model.attention_gate,
           {.help = "whether the sigmoid of further columns of q_proj multiplies attention's "
                    "output, as in Qwen3-Next and Qwen3.5 (llama)",
            .also = "attn_output_gate gated_attention"});
  list.add(
      "delta_layers", &model.delta_layers,
      {.help = "layers, counted from 0, with a gated delta net in place of attention, as in "
               "Qwen3-Next and Qwen3.5 (llama)",
       .min = 0,
       .also = "linear_attention_layers linear_layers gated_deltanet full_attention_interval"});
  list.unused_if([&model] {
    const std::string reason = why_unread(kLlamaFamily, model);
    return reason.empty() && model.delta_layers.empty() ? "model.delta_layers is empty" : reason;
  });
  list.add("delta_key_heads", &model.delta.key_heads,
           {.help = "their heads of queries and keys", .min = 1, .also = "linear_num_key_heads"});
  list.add("delta_value_heads", &model.delta.value_heads,
           {.help = "their heads of values, a multiple of those",
            .min = 1,
            .also = "linear_num_value_heads"});
  list.add(
      "delta_key_dim", &model.delta.key_dim,
      {.help = "columns of a head's queries and keys", .min = 1, .also = "linear_key_head_dim"});
  list.add("delta_value_dim", &model.delta.value_dim,
           {.help = "columns of a head's values", .min = 1, .also = "linear_value_head_dim"});
  list.add("delta_taps", &model.delta.taps,
           {.help = "positions that the convolution of queries, keys and values reads, its own "
                    "included",
            .min = 2,
            .max = DeltaSizes::kMostTaps,
            .also = "linear_conv_kernel_dim conv_kernel_size"});
}

void list_latent_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("kv_lora_rank", &model.kv_lora_rank,
           {.help = "columns of the latents that keys and values are made of, as in DeepSeek's "
                    "latent attention; 0: it is not used (llama)",
            .min = 0,
            .also = "kv_lora multi_latent_attention mla"});
  list.unused_if([&model] {
    const std::string reason = why_unread(kLlamaFamily, model);
    return reason.empty() && model.kv_lora_rank == 0 ? "model.kv_lora_rank is 0" : reason;
  });
  list.add("q_lora_rank", &model.q_lora_rank,
           {.help = "columns of the latents that queries are made of; 0: they have none",
            .min = 0,
            .also = "q_lora"});
  list.add("qk_nope_head_dim", &model.qk_nope_head_dim,
           {.help = "columns of a head's queries and keys without rotary positions",
            .min = 1,
            .also = "qk_head_dim"});
  list.add("qk_rope_head_dim", &model.qk_rope_head_dim,
           {.help = "columns of them with rotary positions, which all heads' keys share",
            .min = 2,
            .also = "qk_pos_emb_head_dim"});
  list.add("v_head_dim", &model.v_head_dim, {.help = "columns of a head's values", .min = 1});
}

void list_scale_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_unread(kLlamaFamily, model); });
  list.add("embedding_scale", &model.embedding_scale,
           {.help = "factor of the embeddings, as in Granite and Gemma (llama)",
            .above = 0,
            .also = "embedding_multiplier scale_embeddings"});
  list.add("attention_scale", &model.attention_scale,
           {.help = "factor of attention's scores, as in Granite; 0: 1 / sqrt(head_dim) (llama)",
            .min = 0,
            .also = "attention_multiplier softmax_scale query_pre_attn_scalar"});
  list.add("residual_scale", &model.residual_scale,
           {.help = "factor of what attention and MLP add to the residual stream, as in Granite "
                    "(llama)",
            .above = 0,
            .also = "residual_multiplier"});
  list.add("logit_scale", &model.logit_scale,
           {.help = "factor of the logits; Granite divides by logits_scaling (llama)",
            .above = 0,
            .also = "logits_scaling output_multiplier"});
  list.add("score_cap", &model.score_cap,
           {.help = "attention's scores s become cap tanh(s / cap), as in Gemma 2; 0: they stay "
                    "(llama)",
            .min = 0,
            .also = "attn_logit_softcapping"});
  list.add("logit_cap", &model.logit_cap,
           {.help = "logits likewise, as in Gemma 2 (llama)",
            .min = 0,
            .also = "final_logit_softcapping logit_softcap"});
}

/// What layers with the window have of their own.
void list_window_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] {
    const std::string reason = why_unread(kLlamaFamily, model);
    return reason.empty() && model.window == 0 ? "model.window is 0" : reason;
  });
  list.add("window_chunks", &model.window_chunks,
           {.help = "whether sequences are in chunks of window positions, of which each sees those "
                    "of its own chunk alone, as in Llama 4",
            .also = "attention_chunk_size chunked_attention"});
  list.add("full_layers", &model.full_layers,
           {.help = "layers, counted from 0, whose attention sees all positions whatever window "
                    "says, as in OLMo 3",
            .min = 0,
            .also = "layer_types sliding_window_pattern max_window_layers global_layers"});
  list.add("window_rope_theta", &model.window_rope_theta,
           {.help = "base of the rotary frequencies in layers with the window; 0: rope_theta",
            .min = 0,
            .also = "rope_local_base_freq local_rope_theta"});
  list.add("window_rope_scaling", &model.window_rope_scaling,
           {.help = "whether rope_scaling holds in layers with the window, too; in OLMo 3 it does "
                    "not"});
}

/// Why keys of these scalings are unread; "" if they count.
std::string why_not_scaled(const ModelConfig& model, std::span<const RopeScalingKind> kinds) {
  std::string reason = why_unread(kLlamaFamily, model);
  if (!reason.empty() || std::ranges::find(kinds, model.rope.kind) != kinds.end()) return reason;
  return concat("model.rope_scaling is ", kRopeScalingKinds[static_cast<int>(model.rope.kind)]);
}

/// Gives the reason to the options that are added next, unless the scaling is one of these kinds.
void unused_if_not(ModelConfig& model, OptionList& list,
                   std::initializer_list<RopeScalingKind> kinds) {
  list.unused_if([&model, kinds = std::vector<RopeScalingKind>(kinds)] {
    return why_not_scaled(model, kinds);
  });
}

void list_scaling_options(ModelConfig& model, OptionList& list) {
  unused_if_not(model, list,
                {RopeScalingKind::llama3, RopeScalingKind::yarn, RopeScalingKind::longrope,
                 RopeScalingKind::linear});
  list.add("rope_factor", &model.rope.factor,
           {.help = "low frequencies are divided by this; of longrope, how many times "
                    "rope_original_positions the longest sequence has (rope_scaling)",
            .above = 0,
            .also = "factor rope_scaling_factor"});
  list.unused_if([&model] {
    constexpr std::array kKinds = {RopeScalingKind::llama3, RopeScalingKind::yarn,
                                   RopeScalingKind::longrope};
    return model.query_growth > 0 ? why_unread(kLlamaFamily, model) : why_not_scaled(model, kKinds);
  });
  list.add("rope_original_positions", &model.rope.original_positions,
           {.help = "longest sequence of the model before scaling (rope_scaling, query_growth)",
            .min = 1,
            .also = "original_max_position_embeddings"});
  unused_if_not(model, list, {RopeScalingKind::llama3});
  list.add("rope_low_freq_factor", &model.rope.low_freq_factor,
           {.help = "frequencies with fewer rotations than this over rope_original_positions are "
                    "divided by rope_factor (rope_scaling llama3)",
            .above = 0,
            .also = "low_freq_factor"});
  list.add("rope_high_freq_factor", &model.rope.high_freq_factor,
           {.help = "frequencies with more rotations than this over rope_original_positions are "
                    "unchanged (rope_scaling llama3)",
            .above = 0,
            .also = "high_freq_factor"});
  unused_if_not(model, list, {RopeScalingKind::yarn});
  list.add("rope_beta_fast", &model.rope.beta_fast,
           {.help = "frequencies with more rotations than this over rope_original_positions are "
                    "unchanged (rope_scaling yarn)",
            .above = 0,
            .also = "beta_fast yarn_beta_fast"});
  list.add("rope_beta_slow", &model.rope.beta_slow,
           {.help = "frequencies with fewer rotations than this over rope_original_positions are "
                    "divided by rope_factor (rope_scaling yarn)",
            .above = 0,
            .also = "beta_slow yarn_beta_slow"});
  list.add("rope_truncate", &model.rope.truncate,
           {.help = "whether the pairs between which the frequencies change are rounded outwards "
                    "to whole ones (rope_scaling yarn)",
            .also = "truncate"});
}

/// Those that longrope has.
void list_longrope_options(ModelConfig& model, OptionList& list) {
  unused_if_not(model, list, {RopeScalingKind::proportional});
  list.add("rope_share", &model.rope.share,
           {.help = "share of the pairs of columns that rotate (rope_scaling proportional)",
            .min = 0,
            .max = 1});
  unused_if_not(model, list, {RopeScalingKind::yarn, RopeScalingKind::longrope});
  list.add("rope_attention_factor", &model.rope.attention_factor,
           {.help = "factor of cosines and sines; 0: 0.1 ln(rope_factor) + 1, or with longrope the "
                    "root of 1 + ln(rope_factor) / ln(rope_original_positions) (rope_scaling)",
            .min = 0,
            .also = "attention_factor yarn_attn_factor mscale"});
  unused_if_not(model, list, {RopeScalingKind::longrope});
  list.add("rope_short_factors", &model.rope.short_factors,
           {.help = "by which each frequency is divided, of each pair of columns that rotate "
                    "(rope_scaling longrope)",
            .above = 0,
            .also = "short_factor"});
  list.add("rope_long_factors", &model.rope.long_factors,
           {.help = "the same in sequences longer than rope_original_positions (rope_scaling "
                    "longrope)",
            .above = 0,
            .also = "long_factor"});
}

/// Why the keys of experts are unread; "" if they count.
std::string why_no_experts(const ModelConfig& model) {
  return model.experts > 0 || !find_family(model) || !model.path.empty() ? why_sizes_unread(model)
                                                                         : "model.experts is 0";
}

void list_expert_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_sizes_unread(model); });
  list.add("experts", &model.experts,
           {.help = "number of experts in the MLP of a layer, of which a router chooses some for "
                    "each token, as in Mixtral; 0: dense MLPs (llama)",
            .min = 0,
            .also = "num_experts num_local_experts n_routed_experts moe_num_experts"});
  list.unused_if([&model] { return why_no_experts(model); });
  list.add("experts_per_token", &model.experts_per_token,
           {.help = "number of experts that the router chooses for each token",
            .min = 0,
            .also = "num_experts_per_tok moe_router_topk top_k moe_top_k"});
  list.add("expert_ffn", &model.expert_ffn,
           {.help = "width of an expert; 0: ffn",
            .min = 0,
            .also = "moe_intermediate_size moe_ffn_hidden_size"});
  list.add(
      "shared_ffn", &model.shared_ffn,
      {.help = "width of an MLP beside the experts that all tokens have, as in GLM-4.5; 0: none",
       .min = 0,
       .also = "n_shared_experts num_shared_experts shared_expert_intermediate_size "
               "moe_shared_expert_intermediate_size"});
  list.add(
      "shared_gate", &model.shared_gate,
      {.help = "whether the sigmoid of a product of each row multiplies the output of that MLP, "
               "as in Qwen2-MoE and Qwen3-Next",
       .also = "shared_expert_gate moe_shared_expert_gate"});
  list.add("expert_groups", &model.expert_groups,
           {.help = "equal groups of experts; a token uses experts of the groups whose two best "
                    "scores have the greatest sums, as in DeepSeek-V3",
            .min = 1,
            .max = 64,
            .also = "n_group num_expert_group moe_router_num_groups"});
  list.add("expert_groups_per_token", &model.expert_groups_per_token,
           {.help = "number of groups whose experts a token uses",
            .min = 1,
            .max = 64,
            .also = "topk_group limited_topk_group moe_router_group_topk"});
  list.add("expert_group_best", &model.expert_group_best,
           {.help = "how many of a group's best scores are added to choose groups: 2, as in "
                    "DeepSeek-V3, or 1, as in DeepSeek-V2",
            .min = 1,
            .max = 2,
            .also = "topk_method"});
  list.add("expert_norm", &model.expert_norm,
           {.help = "whether the scores of a token's experts are divided by their sum",
            .also = "norm_topk_prob moe_normalize_expert_weights"});
  list.add("expert_step", &model.expert_step,
           {.help = "every so many layers, the last one has experts, the others dense MLPs",
            .min = 1,
            .also = "decoder_sparse_step moe_layer_freq"});
  list.add("dense_layers", &model.dense_layers,
           {.help = "layers, counted from 0, that have dense MLPs whatever expert_step says",
            .min = 0,
            .also = "mlp_only_layers"});
}

void list_router_options(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_no_experts(model); });
  list.add("router", model.router, kRouterKinds,
           {.help = "how the router's logits become scores: softmax over all experts, or the "
                    "sigmoid of each",
            .also = "scoring_func moe_router_score_function"});
  list.add("router_scale", &model.router_scale,
           {.help = "factor of the chosen scores",
            .above = 0,
            .also = "routed_scaling_factor moe_router_topk_scaling_factor"});
  list.add("expert_input_scores", &model.expert_input_scores,
           {.help = "whether the scores of a token's experts multiply the experts' inputs, as in "
                    "Llama 4, instead of their outputs"});
  list.add("router_bias", &model.router_bias,
           {.help = "whether each expert has a bias that counts when experts are chosen, but not "
                    "in their scores; training.balance.bias adapts it",
            .also = "e_score_correction_bias moe_router_enable_expert_bias"});
  list.add("router_logit_bias", &model.router_logit_bias,
           {.help = "whether the router's product has a learned bias, as in gpt-oss",
            .also = "moe_router_bias"});
  list.add(
      "expert_block_norms", &model.expert_block_norms,
      {.help = "whether experts, their router and the MLP beside them have norms of their own, "
               "and each expert a learned factor, as in Gemma 4",
       .also = "enable_moe_block"});
  list.add("expert_bias", &model.expert_bias,
           {.help = "whether the products of experts have biases, as in gpt-oss",
            .also = "experts_bias moe_bias"});
}

std::span<const ModelType> all_llama_types() {
  static const std::vector<ModelType> kAll = [] {
    std::vector<ModelType> all;
    for (const auto& types : kLlamaTypes) std::ranges::copy(types(), std::back_inserter(all));
    return all;
  }();
  return kAll;
}

}  // namespace

constexpr Family kLlamaFamily{.name = "llama",
                              .list_options =
                                  [](ModelConfig& model, OptionList& list) {
                                    list_llama_options(model, list);
                                    list_position_options(model, list);
                                    list_full_layer_options(model, list);
                                    list_delta_options(model, list);
                                    list_latent_options(model, list);
                                    list_scale_options(model, list);
                                    list_window_options(model, list);
                                    list_scaling_options(model, list);
                                    list_longrope_options(model, list);
                                    list_expert_options(model, list);
                                    list_router_options(model, list);
                                  },
                              .validate = validate_llama,
                              .make = make_llama,
                              .use_all_operations =
                                  [](ModelConfig& model) {
                                    model.kv_heads = model.heads / 2;
                                    model.qk_norm = QkNormKind::head;
                                  },
                              .types = all_llama_types,
                              .is_of_type = is_llama_type,
                              .type_options = llama_type_options,
                              .read_config = read_llama,
                              .write_config = write_llama,
                              .check = check_llama,
                              .stored_name = llama_stored_name,
                              .embedding = "model.embed_tokens.weight",
                              .gguf_name = llama_gguf_name};

}  // namespace axonn
