// Nemotron 3 and 4, Minitron: LayerNorm that multiplies by 1 + weight, an MLP of squared ReLU, and
// rotary positions on a part of each head.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

ModelConfig with_nemotron_options(ModelConfig model) {
  model.norm = NormKind::layer;
  model.norm_plus_one = true;
  model.norm_eps = 1e-5;
  model.activation = MlpKind::relu2;
  model.partial_rotary_factor = 0.5;
  return model;
}

void check_nemotron_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  check_head_dim(model, unsupported);
}

}  // namespace

std::vector<ModelType> nemotron_types() {
  return {{.name = "nemotron",
           .architecture = "NemotronForCausalLM",
           .defaults = with_nemotron_options(llama_defaults()),
           .bias_keys = {.attention = true, .mlp = true},
           .norm_key = "norm_eps",
           .rope_keys = {.part = true},
           .fits = no_layer_slides,
           .gguf = {.architecture = "nemotron",
                    .biases = true,
                    .partial_rotary = true,
                    .check = check_nemotron_gguf}}};
}

}  // namespace axonn
