#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/model/hugging_face.h"
#include "axonn/nn/xielu.h"

namespace axonn {

namespace {

/// In files of Mixtral's type, which follows from the config as in to_hugging_face_config().
bool has_mixtral_names(const ModelConfig& config) {
  return config.experts > 0 && config.qk_norm == QkNormKind::none;
}

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

/// Adds the names that a model of the llama family has if it was saved without its head.
void add_headless(std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "model.";
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i)
    if (names[i].starts_with(kPrefix)) names.push_back(names[i].substr(kPrefix.size()));
}

/// The name of an expert's matrix, cut up: "model.layers.0.mlp" ".experts." "7" ".gate_proj".
struct ExpertName {
  std::string module, matrix;
  std::int64_t expert = 0;
};

std::optional<ExpertName> expert_name(const std::string& parameter) {
  constexpr std::string_view kExperts = ".experts.", kWeight = ".weight";
  const std::size_t at = parameter.find(kExperts);
  if (at == parameter.npos || !parameter.ends_with(kWeight)) return std::nullopt;
  const std::size_t number = at + kExperts.size(), dot = parameter.find('.', number);
  return ExpertName{parameter.substr(0, at),
                    parameter.substr(dot, parameter.size() - kWeight.size() - dot),
                    std::stoll(parameter.substr(number, dot - number))};
}

/// Mixtral's name of a module "model.layers.0.mlp" with experts.
std::string mixtral_module(const std::string& module) {
  constexpr std::string_view kMlp = "mlp";
  return module.substr(0, module.size() - kMlp.size()) + "block_sparse_moe";
}

/// The names of an expert's matrix, and its place in the tensors of files that join all experts of
/// a layer: gate_up_proj (E, 2F, C), with the gate first, and down_proj (E, C, F).
StoredName stored_expert(const ModelConfig& config, const ExpertName& of) {
  const bool down = of.matrix == ".down_proj", up = of.matrix == ".up_proj";
  const std::string number = std::to_string(of.expert), experts = of.module + ".experts";
  StoredName stored{.names = {experts + '.' + number + of.matrix + ".weight"}};
  if (has_mixtral_names(config))
    stored.names.insert(stored.names.begin(), mixtral_module(of.module) + ".experts." + number +
                                                  (down ? ".w2"
                                                   : up ? ".w3"
                                                        : ".w1") +
                                                  ".weight");
  const std::int64_t parts = down ? 1 : 2;
  stored.joined = {.names = {experts + (down ? ".down_proj" : ".gate_up_proj")},
                   .outer = config.experts,
                   .parts = parts,
                   .part = of.expert * parts + (up ? 1 : 0)};
  return stored;
}

/// Apertus's name of a norm of a block; "" for other parameters.
std::string apertus_norm(const std::string& parameter) {
  constexpr std::array<std::array<std::string_view, 2>, 2> kNames = {
      {{".input_layernorm.weight", ".attention_layernorm.weight"},
       {".post_attention_layernorm.weight", ".feedforward_layernorm.weight"}}};
  for (const auto& [here, there] : kNames)
    if (parameter.ends_with(here))
      return parameter.substr(0, parameter.size() - here.size()) + std::string(there);
  return {};
}

StoredName stored_name(const ModelConfig& config, const std::string& parameter) {
  if (config.family == ModelFamily::gpt)
    return {.names = {parameter, "transformer." + parameter},
            .transposed =
                ends_with_one_of(parameter, {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"})};
  StoredName stored{.names = {parameter}};
  constexpr std::string_view kGate = ".gate.weight";
  if (const auto expert = expert_name(parameter)) {
    stored = stored_expert(config, *expert);
  } else if (has_mixtral_names(config) && parameter.ends_with(kGate)) {
    const std::string module = parameter.substr(0, parameter.size() - kGate.size());
    stored.names.insert(stored.names.begin(), mixtral_module(module) + std::string(kGate));
  } else if (config.activation == MlpKind::xielu) {
    if (const std::string norm = apertus_norm(parameter); !norm.empty()) stored.names = {norm};
  }
  add_headless(stored.names);
  add_headless(stored.joined.names);
  return stored;
}

StoredName stored_adapter_name(const ModelConfig& config, const std::string& parameter) {
  StoredName stored = stored_name(config, parameter);
  stored.transposed = false;  // even for a Conv1D, A is (r, in) and B is (out, r)
  // PEFT names modules as in the model with its head, where GPT-2's have the prefix.
  if (config.family == ModelFamily::gpt) std::ranges::reverse(stored.names);
  for (std::string& name : stored.names) name = "base_model.model." + name;
  return stored;
}

}  // namespace

std::string adapted_layer(std::string_view parameter) {
  const std::size_t end = std::min(parameter.find(".lora_A."), parameter.find(".lora_B."));
  if (end == parameter.npos) return {};
  const std::string_view module = parameter.substr(0, end);
  return std::string(module.substr(module.rfind('.') + 1));
}

TensorNames base_names(const ModelConfig& config) {
  const auto is_buffer = [tied = config.tied](std::string_view tensor) {
    return (tied && tensor == "lm_head.weight") ||
           ends_with_one_of(tensor, {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"});
  };
  TensorNames names{
      .of = [config](const std::string& parameter) { return stored_name(config, parameter); },
      .passed_over = is_buffer,
      .config = "config.json"};
  for (std::int64_t i = 0; config.activation == MlpKind::xielu && i < config.layers; ++i)
    for (const auto& [number, value] :
         {std::pair{"beta", Xielu::kBeta}, std::pair{"eps", Xielu::kEps}})
      names.numbers.push_back({concat("model.layers.", i, ".mlp.act_fn.", number), value});
  return names;
}

TensorNames adapter_names(const ModelConfig& config) {
  return {
      .of =
          [config](const std::string& parameter) { return stored_adapter_name(config, parameter); },
      .passed_over = [](std::string_view) { return false; },
      .config = "adapter_config.json"};
}

}  // namespace axonn
