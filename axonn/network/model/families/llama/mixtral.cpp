// Mixtral: Mistral with experts, whose tensors have names of their own. Sizes: the config.json of
// each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_mixtrals() {
  std::vector<ModelConfig> models;
  add_known(models, with_experts(known_llama(32000, 32768, 1e6), 8, 2, 14336),
            {{"mixtral-8x7b", 32, 4096, 32, 8, 14336}});
  add_known(models, with_experts(known_llama(32768, 65536, 1e6), 8, 2, 16384),
            {{"mixtral-8x22b", 56, 6144, 48, 8, 16384}});
  return models;
}

void read_mixtral(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.window = sliding_window(file, 0);
  read_experts(file, model, unsupported);
}

void write_mixtral(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  write_experts(model, 0.001, out);
  out["num_local_experts"] = model.experts;
  out["router_jitter_noise"] = 0.0;
  out["intermediate_size"] = model.expert_ffn;
}

void check_mixtral(const ModelConfig& model, Unsupported& unsupported) {
  check_router(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  check_all_routed(model, unsupported);
}

}  // namespace

std::string sparse_moe(const std::string& mlp) {
  return mlp.substr(0, mlp.rfind('.')) + ".block_sparse_moe";
}

void add_mixtral_names(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  const auto add = [&](const std::string& mlp, const auto&... rest) {
    stored.names.insert(stored.names.begin(), concat(sparse_moe(mlp), rest...));
  };
  if (const auto expert = expert_name(parameter))
    return add(expert->module, ".experts.", expert->expert,
               expert->matrix == ".down_proj" ? ".w2.weight"
               : expert->matrix == ".up_proj" ? ".w3.weight"
                                              : ".w1.weight");
  constexpr std::string_view kGate = ".gate.weight", kBias = ".e_score_correction_bias";
  if (parameter.ends_with(kGate)) add(parameter.substr(0, parameter.size() - kGate.size()), kGate);
  if (!parameter.ends_with(kBias)) return;
  const std::string mlp = parameter.substr(0, parameter.rfind(".gate."));
  stored.names.push_back(concat(mlp, kBias));  // in the modules of transformers 5
  add(mlp, kBias);
}

std::vector<ModelType> mixtral_types() {
  ModelConfig defaults = with_experts(llama_defaults(), 8, 2, 0);
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 1e6;
  defaults.kv_heads = 8;
  return {{.name = "mixtral",
           .architecture = "MixtralForCausalLM",
           .defaults = defaults,
           .known = known_mixtrals,
           .read = read_mixtral,
           .write = write_mixtral,
           .check = check_mixtral,
           .rename = add_mixtral_names,
           .gguf = {.architecture = "llama",
                    .interleaved = true,
                    .experts = true,
                    .check = check_normalised_experts}}};
}

}  // namespace axonn
