// Seed-OSS: a Llama with biases of queries, keys and values, and perhaps of the output projection
// or of the MLP. Sizes: the config.json of the model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

constexpr std::string_view kSeed = "seed_oss";

std::vector<ModelConfig> known_seeds() {
  ModelConfig model = known_llama(155136, 524288, 1e7);
  model.type = kSeed;
  model.norm_eps = 1e-6;
  model.head_dim = 128;
  model.qkv_bias = true;
  std::vector<ModelConfig> models;
  add_known(models, model, {{"seed-oss-36b", 64, 5120, 80, 8, 27648}});
  return models;
}

void write_seed(const ModelConfig&, JsonObject& out) { out["residual_dropout"] = 0.0; }

}  // namespace

std::vector<ModelType> seed_types() {
  ModelConfig defaults = llama_defaults();
  defaults.type = kSeed;
  defaults.kv_heads = 8;
  defaults.head_dim = 128;
  defaults.qkv_bias = true;
  return {{.name = kSeed,
           .architecture = "SeedOssForCausalLM",
           .defaults = defaults,
           .bias_keys = {.qkv = true, .out = true, .mlp = true},
           .fits = no_layer_slides,
           .known = known_seeds,
           .write = write_seed,
           .gguf = {.architecture = "seed_oss",
                    .mlp_norm = "post_attention_norm",
                    .check = need_plain_rope}}};
}

}  // namespace axonn
