// EXAONE 4: norms at the output of attention and MLP, norms of query and key heads, and in the
// larger model layers with a window in turn with layers without rotary positions. Sizes: the
// config.json of each model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

constexpr std::int64_t kExaoneWindow = 4096, kExaonePattern = 4;  // if the file is silent

ModelConfig with_exaone_norms(ModelConfig model) {
  model.block_norm = BlockNormKind::output;
  model.qk_norm = QkNormKind::head;
  return model;
}

std::vector<ModelConfig> known_exaones() {
  ModelConfig exaone = with_exaone_norms(known_llama(102400, 131072, 1e6)), small = exaone;
  exaone.rope.kind = RopeScalingKind::llama3;
  exaone.rope.factor = 16;
  small.rope.kind = RopeScalingKind::llama3;
  small.positions = 65536;
  small.tied = true;
  small.head_dim = 64;
  std::vector<ModelConfig> models;
  add_known(models, small, {{"exaone-4.0-1.2b", 30, 2048, 32, 8, 4096}});
  add_known(models, exaone, {{"exaone-4.0-32b", 64, 5120, 40, 8, 27392}});
  set_window_and_ropes(models.back(), kExaoneWindow,
                       every_nth_layer(models.back(), kExaonePattern));
  return models;
}

/// sliding_window_pattern: every so many layers one has no window.
LayerList full_by_pattern(const JsonReader& file, const ModelConfig& model) {
  const nlohmann::json* const pattern = file.find({"sliding_window_pattern"});
  if (!pattern || !pattern->is_string())
    return every_nth_layer(
        model, file.integer({"sliding_window_pattern"}, kMostLayers).value_or(kExaonePattern));
  refuse(file.location(), ": sliding_window_pattern is ", pattern->dump(),
         " without layer_types; transformers reads a number alone");
}

void read_exaone(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const std::int64_t window = sliding_window(file, kExaoneWindow);
  const auto listed = full_layers(file, model, unsupported);
  if (window == 0) {
    file.find({"sliding_window_pattern"});
    return set_needed_window(file, model, 0, listed.value_or(every_nth_layer(model, 1)));
  }
  if (listed) file.find({"sliding_window_pattern"});
  set_window_and_ropes(model, window, listed ? *listed : full_by_pattern(file, model));
}

void write_exaone(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  write_layer_types(model, out);
  if (model.window == 0) out["sliding_window_pattern"] = nullptr;
}

/// Without a window all layers have rotary positions.
void check_exaone(const ModelConfig& model, Unsupported& unsupported) {
  if (model.window > 0) return check_full_layers_without_rope(model, unsupported);
  if (!model.nope_layers.empty()) unsupported.emplace_back("nope_layers without window");
}

/// llama.cpp has a window in models of 64 layers, in all but each fourth, and in no others.
void check_exaone_gguf(const ModelConfig& model, Unsupported& unsupported) {
  const bool slides = model.window > 0, knows = model.layers == 64;
  if (slides != knows || (slides && model.full_layers != every_nth_layer(model, 4)))
    unsupported.push_back(concat(slides ? "a window" : "no window", " in ", model.layers,
                                 " layers, or full_layers other than each fourth"));
}

}  // namespace

std::vector<ModelType> exaone_types() {
  ModelConfig defaults = with_exaone_norms(llama_defaults());
  defaults.norm_eps = 1e-5;
  defaults.kv_heads = 32;
  return {{.name = "exaone4",
           .architecture = "Exaone4ForCausalLM",
           .defaults = defaults,
           .by_layer = {.windows = true, .nopes = true},
           .known = known_exaones,
           .read = read_exaone,
           .write = write_exaone,
           .check = check_exaone,
           .gguf = {.architecture = "exaone4",
                    .windows = true,
                    .full_every = 4,
                    .nope_every = 4,
                    .check = check_exaone_gguf}}};
}

}  // namespace axonn
