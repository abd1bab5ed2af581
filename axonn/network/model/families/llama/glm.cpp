// GLM-4: norms at the input and at the output of attention and MLP, and rotary positions on
// neighbouring columns of half a head. Sizes: the config.json of each model.
#include <array>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

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
  add_known(models, glm, {{"glm-4-32b-0414", 61, 6144, 48, 8, 23040}});
  return models;
}

/// The norms' names there, and gate and up joined.
void rename_glm(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  constexpr std::array<std::array<std::string_view, 2>, 3> kNames = {
      {{".post_attention_layernorm.", ".post_self_attn_layernorm."},
       {".pre_feedforward_layernorm.", ".post_attention_layernorm."},
       {".post_feedforward_layernorm.", ".post_mlp_layernorm."}}};
  for (const auto& [here, there] : kNames)
    if (const std::size_t at = parameter.find(here); at != parameter.npos)
      stored.names = {concat(parameter.substr(0, at), there, parameter.substr(at + here.size()))};
  join_gate_and_up(model, parameter, stored);
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
  return {{.name = "glm4",
           .architecture = "Glm4ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.qkv = true},
           .rope_keys = {.part = true},
           .fits = no_layer_slides,
           .known = known_glms,
           .rename = rename_glm}};
}

}  // namespace axonn
