// Mistral, whose attention may have a window, and Ministral, where some layers have none. Sizes:
// the config.json of each model.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

constexpr std::int64_t kMistralWindow = 4096;  // of the first model, and of files without the key

std::vector<ModelConfig> known_mistrals() {
  std::vector<ModelConfig> models;
  ModelConfig first = known_llama(32000, 32768);
  first.window = kMistralWindow;
  add_known(models, first, {{"mistral-7b-v0.1", 32, 4096, 32, 8, 14336}});
  add_known(models, known_llama(32768, 32768, 1e6), {{"mistral-7b-v0.3", 32, 4096, 32, 8, 14336}});
  return models;
}

/// By its card the layers are "ragged (128k, 32k, 32k, 32k)": each fourth, from the first on, sees
/// all positions.
std::vector<ModelConfig> known_ministrals() {
  ModelConfig model = known_llama(131072, 131072, 1e8);
  model.head_dim = 128;
  std::vector<ModelConfig> models;
  add_known(models, model, {{"ministral-8b-2410", 36, 4096, 32, 8, 12288}});
  ModelConfig& ministral = models.back();
  ministral.window = 32768;
  ministral.full_layers = layers_where(ministral, [](std::int64_t i) { return i % 4 == 0; });
  return models;
}

/// transformers takes files of either type with layer_types for Ministral.
void read_mistral(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const std::int64_t window = sliding_window(file, kMistralWindow);
  if (const auto full = full_layers(file, model, unsupported))
    set_needed_window(file, model, window, *full);
  else
    set_window(model, window, {});
}

void write_ministral(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  write_layer_types(model, out);
}

}  // namespace

std::vector<ModelType> mistral_types() {
  ModelConfig defaults = llama_defaults();
  defaults.window = kMistralWindow;
  defaults.kv_heads = 8;
  ModelConfig some = defaults;
  some.full_layers = {0};
  return {{.name = "mistral",
           .architecture = "MistralForCausalLM",
           .defaults = defaults,
           .fits = all_layers_slide,
           .known = known_mistrals,
           .read = read_mistral,
           .write = write_window,
           .gguf = {.architecture = "llama", .interleaved = true}},
          {.name = "ministral",
           .architecture = "MinistralForCausalLM",
           .defaults = some,
           .by_layer = {.windows = true},
           .fits = some_layers_slide,
           .known = known_ministrals,
           .read = read_mistral,
           .write = write_ministral,
           .gguf = {.architecture = "llama", .interleaved = true}}};
}

}  // namespace axonn
