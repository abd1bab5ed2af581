// SmolLM3, where some layers have no rotary positions. Sizes: the config.json of the model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_smollms() {
  ModelConfig smollm = known_llama(128256, 65536, 5e6);
  smollm.tied = true;
  smollm.norm_eps = 1e-6;
  std::vector<ModelConfig> models;
  add_known(models, smollm, {{"smollm3-3b", 36, 2048, 16, 4, 11008}});
  models.back().nope_layers = every_nth_layer(models.back(), kRopeInterval);
  return models;
}

/// The window is of the layers that layer_types says, else of those without rotary positions.
void read_smollm(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.nope_layers = layers_without_rope(file, model);
  const std::int64_t window = sliding_window(file, 0);
  const bool slides = file.flag("use_sliding_window", false);
  if (const auto full = full_layers(file, model, unsupported))
    set_needed_window(file, model, window, *full);
  else if (slides)
    set_window(model, window,
               layers_where(model, [&](std::int64_t layer) { return model.has_rope(layer); }));
}

void write_smollm(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  write_layer_types(model, out);
  out["use_sliding_window"] = model.window > 0;
  write_rope_layers(model, out);
}

/// llama.cpp takes every fourth layer for one without rotary positions, and has no scaling.
void check_smollm_gguf(const ModelConfig& model, Unsupported& unsupported) {
  const auto has_none = [&](std::int64_t layer) { return !model.has_rope(layer); };
  if (layers_where(model, has_none) != every_nth_layer(model, kRopeInterval))
    unsupported.emplace_back("nope_layers other than every fourth layer");
  need_plain_rope(model, unsupported);
}

}  // namespace

std::vector<ModelType> smollm_types() {
  ModelConfig defaults = llama_defaults();
  defaults.kv_heads = 4;
  defaults.tied = true;
  defaults.rope_theta = 2e6;
  defaults.nope_layers = {kRopeInterval - 1};
  return {{.name = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .defaults = defaults,
           .by_layer = {.windows = true},
           .bias_keys = {.attention = true, .mlp = true},
           .known = known_smollms,
           .read = read_smollm,
           .write = write_smollm,
           .gguf = {.architecture = "smollm3",
                    .interleaved = true,
                    .nope_every = kRopeInterval,
                    .check = check_smollm_gguf}}};
}

}  // namespace axonn
