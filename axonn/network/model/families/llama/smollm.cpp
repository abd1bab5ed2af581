// SmolLM3, where some layers have no rotary positions. Sizes: the config.json of the model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

// Of layers without rotary positions, if the file is silent.
constexpr std::int64_t kSmollmInterval = 4;

std::vector<ModelConfig> known_smollms() {
  ModelConfig smollm = known_llama(128256, 65536, 5e6);
  smollm.tied = true;
  smollm.norm_eps = 1e-6;
  std::vector<ModelConfig> models;
  add_known(models, smollm, {{"smollm3-3b", 36, 2048, 16, 4, 11008}});
  models.back().nope_layers = every_nth_layer(models.back(), kSmollmInterval);
  return models;
}

/// The layers with a 0 in no_rope_layers, which may have more entries than there are layers.
LayerList layers_without_rope(const JsonReader& file, const ModelConfig& model) {
  const std::int64_t interval =
      file.integer({"no_rope_layer_interval"}, kMostLayers).value_or(kSmollmInterval);
  if (!file.find({"no_rope_layers"})) return every_nth_layer(model, interval);
  const std::vector<std::int64_t> has_rope = file.integers("no_rope_layers");
  if (std::ssize(has_rope) < model.layers)
    refuse(file.place(), ": no_rope_layers wants one number, 0 or 1, for each of the ",
           model.layers, " layers, got ", has_rope.size());
  return layers_where(model, [&](std::int64_t layer) { return has_rope[layer] == 0; });
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
  out["no_rope_layer_interval"] = kSmollmInterval;
  nlohmann::json has_rope = nlohmann::json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    has_rope.push_back(model.has_rope(layer) ? 1 : 0);
  out["no_rope_layers"] = std::move(has_rope);
}

/// llama.cpp takes every fourth layer for one without rotary positions, and has no scaling.
void check_smollm_gguf(const ModelConfig& model, Unsupported& unsupported) {
  const auto has_none = [&](std::int64_t layer) { return !model.has_rope(layer); };
  if (layers_where(model, has_none) != every_nth_layer(model, kSmollmInterval))
    unsupported.emplace_back("nope_layers other than every fourth layer");
  need_plain_rope(model, unsupported);
}

}  // namespace

std::vector<ModelType> smollm_types() {
  ModelConfig defaults = llama_defaults();
  defaults.kv_heads = 4;
  defaults.tied = true;
  defaults.rope_theta = 2e6;
  defaults.nope_layers = {kSmollmInterval - 1};
  return {{.name = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .defaults = defaults,
           .by_layer = {.windows = true},
           .bias_keys = {.attention = true, .mlp = true},
           .known = known_smollms,
           .read = read_smollm,
           .write = write_smollm,
           .gguf = {.architecture = "smollm3", .interleaved = true, .check = check_smollm_gguf}}};
}

}  // namespace axonn
