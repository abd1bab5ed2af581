// Mistral, whose attention may have a window, and Ministral, where some layers have none. Sizes:
// the config.json of each model.
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

constexpr const char* kThird = "ministral3";
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

std::vector<ModelConfig> known_ministrals_3() {
  ModelConfig model = known_llama(131072, 262144, 1e6);
  model.head_dim = 128;
  model.rope = {.kind = RopeScalingKind::yarn, .factor = 16, .original_positions = 16384};
  model.rope.attention_factor = 1;
  model.query_growth = 0.1;
  std::vector<ModelConfig> models;
  ModelConfig small = model;
  small.tied = true;
  add_known(models, small, {{"ministral-3-3b", 26, 3072, 32, 8, 9216}});
  add_known(
      models, model,
      {{"ministral-3-8b", 34, 4096, 32, 8, 14336}, {"ministral-3-14b", 40, 5120, 32, 8, 16384}});
  models.back().rope_theta = 1e9;
  return models;
}

void read_ministral_3(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  if (model.query_growth == 0) model.type = kThird;
  if (file.find({"layer_types"})) unsupported.emplace_back("layer_types");
  set_window(model, sliding_window(file, 0), {});
}

/// Its keys of rotary positions are in one object.
void write_ministral_3(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  nlohmann::json rope = rope_scaling_keys(model.rope);
  rope["original_max_position_embeddings"] = model.rope.original_positions;
  rope["rope_theta"] = model.rope_theta;
  rope["llama_4_scaling_beta"] = model.query_growth;
  out.erase("rope_scaling");
  out["rope_parameters"] = std::move(rope);
}

GgufKeys gguf_query_growth(const ModelConfig& model) {
  return {gguf_number("attention.temperature_scale", model.query_growth)};
}

void read_ministral_3_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  model.query_growth = keys.number_or("attention.temperature_scale", 0);
}

/// llama.cpp counts YaRN's original positions alone.
void check_ministral_3_gguf(const ModelConfig& model, Unsupported& unsupported) {
  if (model.query_growth == 0) unsupported.emplace_back("query_growth = 0");
  if (model.rope.kind != RopeScalingKind::yarn)
    unsupported.emplace_back("rope_scaling other than yarn");
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
  ModelConfig third = llama_defaults();
  third.norm_eps = 1e-5;
  third.kv_heads = 8;
  third.head_dim = 128;
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
           .gguf = {.architecture = "llama", .interleaved = true}},
          {.name = kThird,
           .architecture = "Ministral3ForCausalLM",
           .defaults = third,
           .rope_keys = {.growth = true},
           .fits = [](const ModelConfig& m) { return m.query_growth > 0 || m.type == kThird; },
           .known = known_ministrals_3,
           .read = read_ministral_3,
           .write = write_ministral_3,
           .gguf = {.architecture = "mistral3",
                    .interleaved = true,
                    .yarn = GgufYarn::rotary,
                    .keys = gguf_query_growth,
                    .read = read_ministral_3_gguf,
                    .check = check_ministral_3_gguf}}};
}

}  // namespace axonn
