// ERNIE 4.5: a Llama with rotary positions on neighbouring columns and perhaps biases of all
// products. Sizes: the config.json of each model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_ernies() {
  ModelConfig ernie = known_llama(103424, 131072, 500000);
  ernie.tied = true;
  ernie.head_dim = 128;
  ernie.rope_pairs = RopePairs::neighbours;
  std::vector<ModelConfig> models;
  add_known(models, ernie, {{"ernie-4.5-0.3b", 18, 1024, 16, 2, 3072}});
  return models;
}

}  // namespace

std::vector<ModelType> ernie_types() {
  ModelConfig defaults = llama_defaults();
  defaults.tied = true;
  defaults.norm_eps = 1e-5;
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.rope_theta = 500000;
  defaults.rope_pairs = RopePairs::neighbours;
  return {{.name = "ernie4_5",
           .architecture = "Ernie4_5ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.all = true},
           .fits = no_layer_slides,
           .known = known_ernies}};
}

}  // namespace axonn
