#include "axonn/model/stored_names.h"

#include <algorithm>
#include <array>

namespace axonn {

namespace {

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

StoredName stored_name(ModelFamily family, const std::string& parameter) {
  if (family == ModelFamily::gpt)
    return {.names = {parameter, "transformer." + parameter},
            .transposed =
                ends_with_one_of(parameter, {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"})};
  constexpr std::string_view kPrefix = "model.";  // absent if the model was saved without its head
  StoredName stored{.names = {parameter}};
  if (parameter.starts_with(kPrefix)) stored.names.push_back(parameter.substr(kPrefix.size()));
  return stored;
}

StoredName stored_adapter_name(ModelFamily family, const std::string& parameter) {
  StoredName stored = stored_name(family, parameter);
  stored.transposed = false;  // even for a Conv1D, A is (r, in) and B is (out, r)
  // PEFT names modules as in the model with its head, where GPT-2's have the prefix.
  if (family == ModelFamily::gpt) std::ranges::reverse(stored.names);
  for (std::string& name : stored.names) name = "base_model.model." + name;
  return stored;
}

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
  return {.of = [family = config.family](
                    const std::string& parameter) { return stored_name(family, parameter); },
          .passed_over = is_buffer,
          .config = "config.json"};
}

TensorNames adapter_names(const ModelConfig& config) {
  return {
      .of = [family = config.family](
                const std::string& parameter) { return stored_adapter_name(family, parameter); },
      .passed_over = [](std::string_view) { return false; },
      .config = "adapter_config.json"};
}

}  // namespace axonn
