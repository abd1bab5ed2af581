// Mistral, whose attention may have a window. Sizes: the config.json of each model.
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

void read_mistral(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  if (layers_slide(file, unsupported).value_or(true))
    model.window = sliding_window(file, kMistralWindow);
}

}  // namespace

std::vector<ModelType> mistral_types() {
  ModelConfig defaults = llama_defaults();
  defaults.window = kMistralWindow;
  defaults.kv_heads = 8;
  return {{.name = "mistral",
           .architecture = "MistralForCausalLM",
           .defaults = defaults,
           .known = known_mistrals,
           .read = read_mistral,
           .write = write_window,
           .gguf = {.architecture = "llama", .interleaved = true}}};
}

}  // namespace axonn
