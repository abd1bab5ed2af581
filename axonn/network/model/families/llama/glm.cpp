// GLM-4: norms at the input and at the output of attention and MLP, and rotary positions on
// neighbouring columns of half a head. GLM-4.5 to 4.7 (glm4_moe): experts, in groups or not, whose
// choice has a bias, beside an MLP of all tokens, in all layers but the first. Sizes: the
// config.json of each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_glms() {
  ModelConfig glm = known_llama(151552, 32768);
  glm.block_norm = BlockNormKind::both;
  glm.rope_pairs = RopePairs::neighbours;
  glm.partial_rotary_factor = 0.5;
  glm.head_dim = 128;
  ModelConfig nine = glm;
  nine.qkv_bias = true;
  std::vector<ModelConfig> models;
  add_known(models, nine, {{"glm-4-9b-0414", 40, 4096, 32, 2, 13696}});
  add_known(models, glm, {{"glm-4-32b-0414", 61, 6144, 48, 2, 23040}});
  return models;
}

/// The norms' names there, and gate and up joined.
void rename_glm(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".post_attention_layernorm.", ".post_self_attn_layernorm.", stored);
  rename_part(parameter, ".pre_feedforward_layernorm.", ".post_attention_layernorm.", stored);
  rename_part(parameter, ".post_feedforward_layernorm.", ".post_mlp_layernorm.", stored);
  join_gate_and_up(model, parameter, stored);
}

void read_glm_moe(const JsonReader& file, ModelConfig& model, Unsupported&) {
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    return file.integer({key}, kMostExperts).value_or(otherwise);
  };
  model.qk_norm = file.flag("use_qk_norm", false) ? QkNormKind::head : QkNormKind::none;
  model.experts = integer("n_routed_experts", 128);
  model.experts_per_token = integer("num_experts_per_tok", 8);
  model.expert_ffn = file.integer({"moe_intermediate_size"}, kMostColumns).value_or(1408);
  model.shared_ffn = file.zero_or("n_shared_experts", kMostExperts, 1) * model.expert_ffn;
  model.expert_groups = integer("n_group", 1);
  model.expert_groups_per_token = integer("topk_group", 1);
  model.router_scale = file.real({"routed_scaling_factor"}, 1);
  model.expert_norm = file.flag("norm_topk_prob", true);
  set_dense_layers(model, file.zero_or("first_k_dense_replace", kMostLayers, 1));
}

void write_glm_moe(const ModelConfig& model, JsonObject& out) {
  out["use_qk_norm"] = model.qk_norm == QkNormKind::head;
  out["first_k_dense_replace"] = dense_layer_count(model);
  if (model.experts == 0) return;
  out["n_routed_experts"] = model.experts;
  out["num_experts_per_tok"] = model.experts_per_token;
  out["moe_intermediate_size"] = model.expert_ffn;
  out["n_shared_experts"] = model.shared_ffn / model.expert_ffn;
  out["n_group"] = model.expert_groups;
  out["topk_group"] = model.expert_groups_per_token;
  out["routed_scaling_factor"] = model.router_scale;
  out["norm_topk_prob"] = model.expert_norm;
}

void check_glm_moe(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::sigmoid) unsupported.emplace_back("router = softmax");
  if (!model.router_bias) unsupported.emplace_back("router_bias = false");
  if (model.window > 0) unsupported.push_back(concat("window = ", model.window));
  if (model.qk_norm == QkNormKind::width || model.qk_norm == QkNormKind::rotated_head)
    unsupported.push_back(concat("qk_norm = ", kQkNormKinds[static_cast<int>(model.qk_norm)]));
  need_whole_shared_experts(model, unsupported);
  check_first_layers_dense(model, unsupported);
}

GgufKeys gguf_glm_moe_keys(const ModelConfig& model) {
  return {{"expert_gating_func", kGgufSigmoid},
          {"expert_shared_count", static_cast<std::uint32_t>(model.shared_ffn / model.expert_ffn)},
          {"leading_dense_block_count", static_cast<std::uint32_t>(dense_layer_count(model))},
          {"expert_weights_norm", model.expert_norm},
          gguf_number("expert_weights_scale", model.router_scale)};
}

void check_glm_moe_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (model.experts == 0) unsupported.emplace_back("experts = 0");
  if (model.expert_groups > 1)
    unsupported.push_back(concat("expert_groups = ", model.expert_groups));
}

}  // namespace

std::vector<ModelType> glm_types() {
  ModelConfig defaults = llama_defaults();
  defaults.norm_eps = 1.5625e-7;
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.qkv_bias = true;
  defaults.block_norm = BlockNormKind::both;
  defaults.rope_pairs = RopePairs::neighbours;
  defaults.partial_rotary_factor = 0.5;
  ModelConfig moe = with_experts(llama_defaults(), 128, 8, 1408);
  moe.type = "glm4_moe";
  moe.norm_eps = 1e-5;
  moe.kv_heads = 8;
  moe.partial_rotary_factor = 0.5;
  moe.router = RouterKind::sigmoid;
  moe.router_bias = true;
  return {{.name = "glm4",
           .architecture = "Glm4ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.qkv = true},
           .rope_keys = {.part = true},
           .fits = no_layer_slides,
           .known = known_glms,
           .rename = rename_glm,
           .gguf = {.architecture = "glm4",
                    .biases = true,
                    .partial_rotary = true,
                    .gate_in_up = true,
                    .check = need_plain_rope}},
          {.name = "glm4_moe",
           .architecture = "Glm4MoeForCausalLM",
           .defaults = moe,
           .bias_keys = {.qkv = true},
           .rope_keys = {.part = true},
           .groups_experts = true,
           .further = {.key = "num_nextn_predict_layers"},
           .is_named = true,
           .dense_or_experts = true,
           .read = read_glm_moe,
           .write = write_glm_moe,
           .check = check_glm_moe,
           .gguf = {.architecture = "glm4moe",
                    .biases = true,
                    .mlp_norm = "post_attention_norm",
                    .partial_rotary = true,
                    .experts = true,
                    .keys = gguf_glm_moe_keys,
                    .read =
                        [](const GgufModelKeys& keys, ModelConfig& model) {
                          model.expert_norm = keys.integer_or("expert_weights_norm", 0) != 0;
                        },
                    .check = check_glm_moe_gguf}}};
}

}  // namespace axonn
