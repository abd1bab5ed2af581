// Llama. Sizes: Hugging Face's config.json of each model, as its makers published it.
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_llamas() {
  std::vector<ModelConfig> models;
  add_known(models, known_llama(32000, 2048), {{"tinyllama-1.1b", 22, 2048, 32, 4, 5632}});
  add_known(models, known_llama(32000, 4096),
            {{"llama-2-7b", 32, 4096, 32, 32, 11008},
             {"llama-2-13b", 40, 5120, 40, 40, 13824},
             {"llama-2-70b", 80, 8192, 64, 8, 28672}});
  add_known(models, known_llama(128256, 8192, 500000),
            {{"llama-3-8b", 32, 4096, 32, 8, 14336}, {"llama-3-70b", 80, 8192, 64, 8, 28672}});
  // Low frequencies are divided by the factor, for sequences of up to 131,072.
  ModelConfig longer = known_llama(128256, 131072, 500000), small = longer;
  longer.rope.kind = small.rope.kind = RopeScalingKind::llama3;
  longer.rope.factor = 8;
  small.rope.factor = 32;
  small.tied = true;
  add_known(models, longer,
            {{"llama-3.1-8b", 32, 4096, 32, 8, 14336},
             {"llama-3.1-70b", 80, 8192, 64, 8, 28672},
             {"llama-3.1-405b", 126, 16384, 128, 8, 53248}});
  add_known(models, small,
            {{"llama-3.2-1b", 16, 2048, 32, 8, 8192}, {"llama-3.2-3b", 28, 3072, 24, 8, 8192}});
  add_known(models, longer, {{"llama-3.3-70b", 80, 8192, 64, 8, 28672}});
  return models;
}

}  // namespace

std::vector<ModelType> llama_types() {
  return {{.name = "llama",
           .architecture = "LlamaForCausalLM",
           .defaults = llama_defaults(),
           .bias_keys = {.attention = true, .mlp = true},
           .fits = no_layer_slides,
           .known = known_llamas,
           .gguf = {.architecture = "llama", .interleaved = true, .biases = true}}};
}

}  // namespace axonn
