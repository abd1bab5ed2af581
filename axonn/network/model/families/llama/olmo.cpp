// OLMo 2: norms at the output of attention and MLP, and of queries and keys over the width of all
// heads. OLMo 3: in three of four layers a window, without the scaling of the frequencies that the
// others have. Sizes: the config.json of each model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

constexpr std::int64_t kOlmoWindow = 4096, kOlmoPattern = 4;  // OLMo 3's, if the file is silent

ModelConfig with_norms(ModelConfig model) {
  model.block_norm = BlockNormKind::output;
  model.qk_norm = QkNormKind::width;
  return model;
}

std::vector<ModelConfig> known_olmos_2() {
  ModelConfig olmo = with_norms(known_llama(100352, 4096, 500000));
  olmo.norm_eps = 1e-6;
  std::vector<ModelConfig> models;
  add_known(models, olmo,
            {{"olmo-2-1b", 16, 2048, 16, 16, 8192},
             {"olmo-2-7b", 32, 4096, 32, 32, 11008},
             {"olmo-2-13b", 40, 5120, 40, 40, 13824},
             {"olmo-2-32b", 64, 5120, 40, 8, 27648}});
  return models;
}

std::vector<ModelConfig> known_olmos_3() {
  ModelConfig olmo = with_norms(known_llama(100278, 65536, 500000));
  olmo.norm_eps = 1e-6;
  olmo.window = kOlmoWindow;
  olmo.rope = {.kind = RopeScalingKind::yarn, .factor = 8, .original_positions = 8192};
  olmo.window_rope_scaling = false;
  std::vector<ModelConfig> models;
  add_known(models, olmo,
            {{"olmo-3-7b", 32, 4096, 32, 32, 11008}, {"olmo-3-32b", 64, 5120, 40, 8, 27648}});
  for (ModelConfig& model : models) model.full_layers = every_nth_layer(model, kOlmoPattern);
  return models;
}

void read_olmo_3(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  set_needed_window(
      file, model, sliding_window(file, kOlmoWindow),
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, kOlmoPattern)));
  if (model.window > 0) return;
  model.window_rope_theta = 0;
  model.window_rope_scaling = true;
}

void write_olmo_3(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  write_layer_types(model, out);
  write_ropes(model, out);
}

/// llama.cpp's olmo2 has an output layer, and no scaling but YaRN in full layers.
void check_olmo_gguf(const ModelConfig& model, Unsupported& unsupported) {
  if (model.tied) unsupported.emplace_back("tied = true");
  need_plain_rope(model, unsupported);
  check_head_dim(model, unsupported);
}

}  // namespace

std::vector<ModelType> olmo_types() {
  ModelConfig olmo_2 = with_norms(llama_defaults());
  olmo_2.norm_eps = 1e-5;
  ModelConfig olmo_3 = olmo_2;
  olmo_3.rope_theta = 500000;
  olmo_3.window = kOlmoWindow;
  olmo_3.full_layers = {kOlmoPattern - 1};
  const GgufForm gguf{
      .architecture = "olmo2", .full_every = kOlmoPattern, .check = check_olmo_gguf};
  return {{.name = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .defaults = olmo_2,
           .bias_keys = {.attention = true},
           .fits = no_layer_slides,
           .known = known_olmos_2,
           .gguf = gguf},
          {.name = "olmo3",
           .architecture = "Olmo3ForCausalLM",
           .defaults = olmo_3,
           .by_layer = {.windows = true, .ropes = true},
           .bias_keys = {.attention = true},
           .known = known_olmos_3,
           .read = read_olmo_3,
           .write = write_olmo_3,
           .gguf = gguf}};
}

}  // namespace axonn
