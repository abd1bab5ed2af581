// What must hold among the keys of [model] of the family llama.
#include <span>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/llama.h"

namespace axonn {

namespace {

void validate_longrope(const ModelConfig& model) {
  const RopeScaling& rope = model.rope;
  const std::int64_t pairs = model.rotary_width() / 2;
  for (const auto& [key, factors] : {std::pair{"rope_short_factors", &rope.short_factors},
                                     {"rope_long_factors", &rope.long_factors}})
    if (std::ssize(*factors) != pairs)
      refuse("[model] ", key, " has ", factors->size(), " numbers, but ", pairs,
             " pairs of columns rotate; give one for each");
  if (rope.original_positions < 2 && rope.attention_factor == 0)
    refuse(
        "[model] rope_original_positions = ", rope.original_positions,
        " has a logarithm of 0, by which rope_scaling = \"longrope\" divides; take at least 2, or "
        "set rope_attention_factor");
}

/// Layers without the window whose heads are others.
void validate_full_layers(const ModelConfig& model) {
  if (model.full_head_dim % 2 != 0)
    refuse("[model] full_head_dim = ", model.full_head_dim,
           " is odd, but rotary positions rotate pairs of columns; take ", model.full_head_dim + 1);
  if (model.full_kv_heads > 0 && model.heads % model.full_kv_heads != 0)
    refuse("[model] full_kv_heads = ", model.full_kv_heads,
           " does not divide heads = ", model.heads,
           "; take a divisor, or 0 for as many as kv_heads");
  if (model.qk_norm == QkNormKind::width && model.full_head_dim > 0)
    refuse("[model] qk_norm = \"width\" with full_head_dim = ", model.full_head_dim,
           " is not supported; take \"head\"");
  if (model.block_norm != BlockNormKind::parallel) return;
  for (const auto& [key, is_set] : {std::pair{"layer_factor", model.layer_factor},
                                    {"layer_input", model.layer_input > 0},
                                    {"shared_kv_layers", model.shared_kv_layers > 0}})
    if (is_set)
      refuse("[model] ", key,
             " with block_norm = \"parallel\" is not supported; take another block_norm");
}

void validate_shared_keys(const ModelConfig& model) {
  if (model.layer_input > 0 && model.mup_base > 0)
    refuse("[model] layer_input = ", model.layer_input, " and mup_base = ", model.mup_base,
           ": muP has no rules for it; set mup_base to 0");
  if (model.shared_kv_layers == 0) {
    if (model.double_shared_ffn)
      refuse("[model] double_shared_ffn = true, but shared_kv_layers = 0; set it to false");
    return;
  }
  if (model.shared_kv_layers >= model.layers)
    refuse("[model] shared_kv_layers = ", model.shared_kv_layers, " of ", model.layers,
           " layers leave none with keys; take fewer");
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (model.keys_of(layer) < 0)
      refuse("[model] shared_kv_layers = ", model.shared_kv_layers, ": no layer before these sees ",
             model.window_of(layer) > 0 ? concat(model.window_of(layer)) : "all",
             " positions, as layer ", layer, " does, to give it keys; take fewer, or other ",
             "full_layers");
  if (model.qk_norm == QkNormKind::width || model.qk_norm == QkNormKind::rotated_plain)
    refuse("[model] shared_kv_layers with qk_norm = \"",
           kQkNormKinds[static_cast<int>(model.qk_norm)],
           "\" is not supported; take \"head\", \"rotated-head\" or \"none\"");
}

/// Throws unless the list has layers of the model alone.
void validate_layers(const ModelConfig& model, const char* key,
                     const std::vector<std::int64_t>& layers) {
  for (const std::int64_t layer : layers)
    if (layer >= model.layers)
      refuse("[model] ", key, " has ", layer, ", but the layers are 0 to ", model.layers - 1);
}

void validate_delta(const ModelConfig& model) {
  if (model.attention_gate && model.kv_lora_rank > 0)
    refuse("[model] attention_gate = true with kv_lora_rank = ", model.kv_lora_rank,
           " is not supported; set one of them to its default");
  if (model.attention_gate && (model.full_head_dim > 0 || model.full_values_are_keys))
    refuse(
        "[model] attention_gate = true with full_head_dim or full_values_are_keys is not "
        "supported; leave one of them out");
  if (model.shared_kv_layers > 0 && (model.attention_gate || !model.delta_layers.empty()))
    refuse("[model] shared_kv_layers = ", model.shared_kv_layers,
           " with attention_gate or delta_layers is not supported; set it to 0");
  if (model.delta_layers.empty()) return;
  validate_layers(model, "delta_layers", model.delta_layers);
  if (model.delta.value_heads % model.delta.key_heads != 0)
    refuse("[model] delta_key_heads = ", model.delta.key_heads,
           " does not divide delta_value_heads = ", model.delta.value_heads,
           "; Qwen3-Next has 16 and 32");
  if (model.mup_base > 0)
    refuse("[model] mup_base: muP has no rules for delta_layers; set it to 0");
}

void validate_latents(const ModelConfig& model) {
  if (model.kv_lora_rank == 0) return;
  const auto refuse_with = [&](const auto&... what) {
    refuse("[model] kv_lora_rank = ", model.kv_lora_rank, " makes keys and values of latents, ",
           what...);
  };
  if (model.kv_heads > 0 && model.kv_heads != model.heads)
    refuse_with("of each head its own, but kv_heads = ", model.kv_heads, "; set it to 0");
  if (model.qk_norm != QkNormKind::none)
    refuse_with("which have norms themselves; set qk_norm to \"none\"");
  if (model.sinks) refuse_with("without sinks; set sinks to false");
  if (model.nope_query_growth > 0) refuse_with("without nope_query_growth; set it to 0");
  if (model.full_head_dim > 0 || model.full_kv_heads > 0 || model.full_values_are_keys ||
      model.value_norm || model.shared_kv_layers > 0)
    refuse_with(
        "alike in all layers and without norms of values; leave out full_head_dim, "
        "full_kv_heads, full_values_are_keys, value_norm and shared_kv_layers");
  if (model.partial_rotary_factor != 1)
    refuse_with("and rotates qk_rope_head_dim columns; set partial_rotary_factor to 1");
  if (model.mup_base > 0) refuse_with("for which muP has no rules; set mup_base to 0");
}

void validate_rope(const ModelConfig& model) {
  const std::int64_t width = model.head_width(), rotary = model.rotary_width();
  if (width % 2 != 0)
    refuse("[model] head_dim = ", width,
           " is odd, but rotary positions rotate pairs of columns; take ", width + 1);
  if (rotary < 2 || rotary % 2 != 0)
    refuse("[model] partial_rotary_factor = ", model.partial_rotary_factor, " of ", width,
           " columns of a head are ", rotary, ", but rotary positions rotate pairs; take 1, or ",
           "another part that is even");
  if (model.rope.kind == RopeScalingKind::longrope) validate_longrope(model);
  if (model.rope.kind == RopeScalingKind::llama3 &&
      model.rope.low_freq_factor > model.rope.high_freq_factor)
    refuse("[model] rope_low_freq_factor = ", model.rope.low_freq_factor,
           " is above rope_high_freq_factor = ", model.rope.high_freq_factor,
           "; Llama 3.1 has 1 and 4");
  if (model.rope.kind != RopeScalingKind::yarn) return;
  if (model.rope.beta_slow >= model.rope.beta_fast)
    refuse("[model] rope_beta_slow = ", model.rope.beta_slow,
           " is not below rope_beta_fast = ", model.rope.beta_fast, "; YaRN has 1 and 32");
  for (const double theta : {model.rope_theta, model.window_rope_theta})
    if (theta != 0 && theta <= 1)
      refuse(
          "[model] a base of the rotary frequencies of ", theta,
          " is not above 1, as rope_scaling = \"yarn\" needs; common values are 10,000 and more");
}

void validate_kinds_of_layers(const ModelConfig& model) {
  validate_layers(model, "nope_layers", model.nope_layers);
  validate_layers(model, "full_layers", model.full_layers);
  if (model.window_chunks && model.window == 0)
    refuse("[model] window_chunks = true, but window = 0; set window, the positions of a chunk");
  bool any = model.window == 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) any |= model.window_of(layer) > 0;
  if (!any)
    refuse("[model] full_layers has all ", model.layers,
           " layers, so that none has the window = ", model.window, "; set window = 0");
}

void validate_groups(const ModelConfig& model) {
  const std::int64_t groups = model.expert_groups, kept = model.expert_groups_per_token;
  if (groups < 1 || groups > 64 || model.experts % groups != 0)
    refuse("[model] expert_groups = ", groups,
           " are not 1 to 64 equal groups of experts = ", model.experts,
           "; DeepSeek-V3 has 8 of 256");
  if (kept < 1 || kept > groups || kept * (model.experts / groups) < model.experts_per_token)
    refuse("[model] expert_groups_per_token = ", kept, " of ", groups, " groups of ",
           model.experts / groups, " experts must be 1 to ", groups,
           " and hold experts_per_token = ", model.experts_per_token, " experts");
}

void validate_experts(const ModelConfig& model) {
  if (model.shared_ffn > 0 && model.experts == 0)
    refuse("[model] shared_ffn = ", model.shared_ffn,
           " is the width of an MLP beside experts, but experts = 0; set ffn");
  if (model.shared_gate && (model.shared_ffn == 0 || model.expert_block_norms))
    refuse(
        "[model] shared_gate = true is of the MLP beside experts, without norms of its own; set ",
        model.expert_block_norms ? "expert_block_norms to false" : "shared_ffn");
  if (model.experts == 0) return;
  if (model.expert_input_scores && (model.expert_bias || model.expert_block_norms))
    refuse("[model] expert_input_scores = true with ",
           model.expert_bias ? "expert_bias" : "expert_block_norms",
           " = true is not supported; set it to false");
  if (model.expert_block_norms &&
      (model.shared_ffn == 0 || model.block_norm != BlockNormKind::both))
    refuse(
        "[model] expert_block_norms = true wants block_norm = \"both\", and shared_ffn, the width "
        "of the MLP beside experts");
  if (!model.has_gate())
    refuse("[model] experts = ", model.experts, " have gates, but activation = \"",
           kMlpKinds[static_cast<int>(model.activation)], "\" has none; set it to \"swiglu\"");
  if (model.experts_per_token < 1 || model.experts_per_token > model.experts)
    refuse("[model] experts_per_token = ", model.experts_per_token,
           " must be from 1 to experts = ", model.experts, "; Mixtral chooses 2 of 8");
  validate_groups(model);
  validate_layers(model, "dense_layers", model.dense_layers);
  bool any = false;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) any |= model.has_experts(layer);
  if (!any)
    refuse("[model] experts = ", model.experts, ", but expert_step = ", model.expert_step,
           " and dense_layers leave none of the ", model.layers,
           " layers with experts; set experts = 0 for a dense model");
  bool dense = model.shared_ffn > 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) dense |= !model.has_experts(layer);
  if (model.mlp_bias && !dense)
    refuse("[model] mlp_bias = true, but all layers have experts alone, whose biases are those of ",
           "expert_bias; set it to false");
}

void validate_mtp(const ModelConfig& model) {
  if (model.mtp_layers == 0) return;
  const auto forbid = [&](bool has, const char* what) {
    if (has)
      refuse("[model] mtp_layers = ", model.mtp_layers, " with ", what,
             " is not supported; leave one of them out");
  };
  forbid(model.window > 0, "window");
  forbid(model.full_head_dim > 0, "full_head_dim");
  forbid(model.shared_kv_layers > 0, "shared_kv_layers");
  forbid(model.layer_input > 0, "layer_input");
  forbid(model.mup_base > 0, "mup_base");
  forbid(model.lora.rank > 0 || !model.lora.path.empty(), "[lora] adapters");
}

}  // namespace

void validate_llama(const ModelConfig& model) {
  validate_full_layers(model);
  validate_shared_keys(model);
  validate_delta(model);
  validate_latents(model);
  validate_rope(model);
  validate_kinds_of_layers(model);
  validate_experts(model);
  validate_mtp(model);
  if (!model.type.empty()) need_type(kLlamaFamily, model);
}

}  // namespace axonn
