// Apertus: norms of the heads of queries and keys, and an MLP without a gate, with xIELU. Sizes:
// the config.json of each model; arXiv 2509.14233.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/nn/xielu.h"

namespace axonn {

namespace {

constexpr std::string_view kXielu = ".mlp.act_fn.";  // in the names of its parameters

/// Trained on 4,096 positions with rope_theta 500,000, then extended to these.
std::vector<ModelConfig> known_apertuses() {
  ModelConfig apertus = known_llama(131072, 65536, 12e6);
  apertus.activation = MlpKind::xielu;
  apertus.qk_norm = QkNormKind::head;
  apertus.rope.kind = RopeScalingKind::llama3;
  apertus.rope.factor = 8;
  std::vector<ModelConfig> models;
  add_known(models, apertus,
            {{"apertus-8b", 32, 4096, 32, 8, 21504}, {"apertus-70b", 80, 8192, 64, 8, 43008}});
  return models;
}

void check_apertus(const ModelConfig& model, Unsupported& unsupported) {
  if (model.window > 0) unsupported.push_back(concat("window = ", model.window));
  check_head_dim(model, unsupported);
}

void rename_norms(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".input_layernorm.", ".attention_layernorm.", stored);
  rename_part(parameter, ".post_attention_layernorm.", ".feedforward_layernorm.", stored);
}

std::vector<StoredNumber> xielu_numbers(const ModelConfig& model) {
  std::vector<StoredNumber> numbers;
  for (std::int64_t i = 0; i < model.layers; ++i)
    for (const auto& [name, value] :
         {std::pair{"beta", Xielu::kBeta}, std::pair{"eps", Xielu::kEps}}) {
      const std::string headless = concat("layers.", i, kXielu, name);
      numbers.push_back({{"model." + headless, headless}, value});
    }
  return numbers;
}

GgufKeys xielu_keys(const ModelConfig& model, ParameterSource& source) {
  const auto layers = static_cast<std::size_t>(model.layers);
  const auto learned = [&](const char* name) {
    std::vector<float> values(layers);
    for (std::size_t i = 0; i < layers; ++i)
      source.read_slice(concat("model.layers.", i, kXielu, name), {.rows = 1, .cols = 1, .end = 1},
                        std::span(values).subspan(i, 1));
    return values;
  };
  const auto constant = [&](double value) {
    return std::vector<float>(layers, static_cast<float>(value));
  };
  return {{"xielu.alpha_p", learned("alpha_p")},
          {"xielu.alpha_n", learned("alpha_n")},
          {"xielu.beta", constant(Xielu::kBeta)},
          {"xielu.eps", constant(Xielu::kEps)}};
}

void read_xielu_gguf(const GgufModelKeys& keys, ModelConfig&) {
  for (const auto& [key, wanted] :
       {std::pair{"xielu.beta", Xielu::kBeta}, std::pair{"xielu.eps", Xielu::kEps}})
    if (const std::vector<double>* const found = keys.file().numbers(key))
      for (const double value : *found)
        if (static_cast<float>(value) != static_cast<float>(wanted))
          refuse(keys.file().path(), ": ", key, " is ", value, ", wanted ", wanted, kGgufRemedy);
}

}  // namespace

std::vector<ModelType> apertus_types() {
  ModelConfig defaults = llama_defaults();
  defaults.norm_eps = 1e-5;
  defaults.activation = MlpKind::xielu;
  defaults.qk_norm = QkNormKind::head;
  defaults.rope_theta = 12e6;
  defaults.rope.kind = RopeScalingKind::llama3;
  return {{.name = "apertus",
           .architecture = "ApertusForCausalLM",
           .defaults = defaults,
           .bias_keys = {.attention = true},
           .known = known_apertuses,
           .check = check_apertus,
           .rename = rename_norms,
           .numbers = xielu_numbers,
           .gguf = {.architecture = "apertus",
                    .read = read_xielu_gguf,
                    .kept_in_keys = kXielu,
                    .kept_key = "xielu.",
                    .values = xielu_keys}}};
}

}  // namespace axonn
