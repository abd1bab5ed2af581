// HunYuan (dense): a Llama with norms of query and key heads after rotary positions, whose base was
// multiplied for longer sequences.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

void read_hunyuan(const JsonReader& file, ModelConfig&, Unsupported&) {
  file.find({"eod_token_id"});
}

void rename_hunyuan(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".q_norm.", ".query_layernorm.", stored);
  rename_part(parameter, ".k_norm.", ".key_layernorm.", stored);
}

}  // namespace

std::vector<ModelType> hunyuan_types() {
  ModelConfig defaults = llama_defaults();
  defaults.norm_eps = 1e-5;
  defaults.qk_norm = QkNormKind::rotated_head;
  return {{.name = "hunyuan_v1_dense",
           .architecture = "HunYuanDenseV1ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.attention = true},
           .rope_keys = {.alpha = true},
           .fits = no_layer_slides,
           .read = read_hunyuan,
           .rename = rename_hunyuan,
           .gguf = {.architecture = "hunyuan-dense", .check = need_plain_rope}}};
}

}  // namespace axonn
