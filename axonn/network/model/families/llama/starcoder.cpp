// StarCoder2: a Llama with LayerNorm, biases of all products, and an MLP of GPT-2's form. Sizes:
// the config.json of each model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_starcoders() {
  ModelConfig model = known_llama(49152, 16384);
  model.norm = NormKind::layer;
  model.activation = MlpKind::gelu;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.tied = true;
  model.window = 4096;
  std::vector<ModelConfig> models;
  add_known(models, model,
            {{"starcoder2-3b", 30, 3072, 24, 2, 12288},
             {"starcoder2-7b", 32, 4608, 36, 4, 18432},
             {"starcoder2-15b", 40, 6144, 48, 4, 24576}});
  models[0].rope_theta = 999999.4420358813;
  models[1].rope_theta = 1e6;
  models[2].rope_theta = 1e5;
  models[2].tied = false;
  return models;
}

void read_starcoder(const JsonReader& file, ModelConfig& model, Unsupported&) {
  set_window(model, sliding_window(file, 0), {});
}

void write_starcoder(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  out["embedding_dropout"] = out["residual_dropout"] = 0.0;
}

void rename_mlp(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".mlp.up_proj.", ".mlp.c_fc.", stored);
  rename_part(parameter, ".mlp.down_proj.", ".mlp.c_proj.", stored);
}

/// llama.cpp needs the biases.
void check_starcoder_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (!model.qkv_bias) unsupported.emplace_back("qkv_bias = false");
}

}  // namespace

std::vector<ModelType> starcoder_types() {
  ModelConfig defaults = llama_defaults();
  defaults.norm = NormKind::layer;
  defaults.norm_eps = 1e-5;
  defaults.activation = MlpKind::gelu;
  defaults.qkv_bias = true;
  defaults.tied = true;
  defaults.kv_heads = 2;
  return {{.name = "starcoder2",
           .architecture = "Starcoder2ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.all = true},
           .norm_key = "norm_epsilon",
           .known = known_starcoders,
           .read = read_starcoder,
           .write = write_starcoder,
           .check = check_head_dim,
           .rename = rename_mlp,
           .gguf = {.architecture = "starcoder2", .biases = true, .check = check_starcoder_gguf}}};
}

}  // namespace axonn
