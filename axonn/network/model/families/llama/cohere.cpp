// Command R7B and A (cohere2): attention and MLP beside each other with one LayerNorm without bias,
// and layers with a window and rotary positions on neighbours in turn with layers without either.
// Sizes: the config.json of the model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

constexpr std::int64_t kCohereWindow = 4096, kCoherePattern = 4;  // if the file is silent

ModelConfig with_cohere_options(ModelConfig model) {
  model.norm = NormKind::layer_without_bias;
  model.norm_eps = 1e-5;
  model.block_norm = BlockNormKind::parallel;
  model.rope_pairs = RopePairs::neighbours;
  model.tied = true;
  return model;
}

std::vector<ModelConfig> known_coheres() {
  ModelConfig model = with_cohere_options(known_llama(256000, 132096, 50000));
  model.logit_scale = 0.25;
  std::vector<ModelConfig> models;
  add_known(models, model, {{"command-r7b-12-2024", 32, 4096, 32, 8, 14336}});
  set_window_and_ropes(models.back(), kCohereWindow,
                       every_nth_layer(models.back(), kCoherePattern));
  return models;
}

void read_cohere(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.logit_scale = file.real({"logit_scale"}, 0.0625);
  const std::int64_t pattern =
      file.integer({"sliding_window_pattern"}, kMostLayers).value_or(kCoherePattern);
  const std::int64_t window = sliding_window(file, kCohereWindow);
  if (window == 0) return unsupported.push_back("sliding_window = null");
  set_window_and_ropes(
      model, window,
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, pattern)));
}

void write_cohere(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? model.window : kCohereWindow;
  write_layer_types(model, out);
  out["logit_scale"] = model.logit_scale;
}

void check_cohere(const ModelConfig& model, Unsupported& unsupported) {
  check_full_layers_without_rope(model, unsupported);
  check_head_dim(model, unsupported);
}

/// In llama.cpp each fourth layer has no window, and the output layer is the embedding.
void check_cohere_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (!model.tied) unsupported.emplace_back("tied = false");
  if (model.window == 0 || model.full_layers != every_nth_layer(model, 4))
    unsupported.emplace_back("full_layers other than each fourth");
}

GgufKeys gguf_logit_scale(const ModelConfig& model) {
  return {gguf_number("logit_scale", model.logit_scale)};
}

void read_logit_scale(const GgufModelKeys& keys, ModelConfig& model) {
  model.logit_scale = keys.number_or("logit_scale", model.logit_scale);
}

}  // namespace

std::vector<ModelType> cohere_types() {
  return {{.name = "cohere2",
           .architecture = "Cohere2ForCausalLM",
           .defaults = with_cohere_options(llama_defaults()),
           .by_layer = {.windows = true, .nopes = true},
           .bias_keys = {.attention = true},
           .norm_key = "layer_norm_eps",
           .scale_keys = {.logit = true},
           .known = known_coheres,
           .read = read_cohere,
           .write = write_cohere,
           .check = check_cohere,
           .gguf = {.architecture = "cohere2",
                    .windows = true,
                    .full_every = 4,
                    .nope_every = 4,
                    .keys = gguf_logit_scale,
                    .read = read_logit_scale,
                    .check = check_cohere_gguf}}};
}

}  // namespace axonn
