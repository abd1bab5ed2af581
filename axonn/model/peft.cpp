#include "axonn/model/peft.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/model/families/family.h"
#include "axonn/model/json_reader.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

/// Keys that do not change what adapters compute: who wrote the file, how its training began, and
/// which layers have them, which their tensors say as well.
constexpr std::array<std::string_view, 20> kHarmlessAdapterKeys = {
    "auto_mapping",   "base_model_class", "corda_config",   "ensure_weight_tying",
    "eva_config",     "exclude_modules",  "fan_in_fan_out", "inference_mode",
    "layers_pattern", "loftq_config",     "lora_ga_config", "megatron_config",
    "megatron_core",  "parent_library",   "peft_version",   "qalora_group_size",
    "revision",       "runtime_config",   "target_modules", "task_type"};

/// Adds the keys that say that something is to be computed otherwise than models here do, which a
/// key does whose value is neither null, false nor empty.
void add_unread(const JsonReader& file, Unsupported& unsupported) {
  for (const std::string& key : file.unread(kHarmlessAdapterKeys))
    if (!says_nothing(*file.find({key.c_str()}))) unsupported.push_back(key);
}

StoredAdapterConfig adapters_of(const nlohmann::json& json, const std::string& place) {
  const JsonReader file(json, place);
  const std::string type = file.text({"peft_type"}, "");
  if (type != "LORA")
    refuse(place, ": peft_type is '", type, "'; only LORA adapters are supported");
  Unsupported unsupported;
  // Others may change the base weights, too, which then differ from those of the named base model.
  if (const nlohmann::json* start = file.find({"init_lora_weights"}); start && start->is_string())
    if (*start != "gaussian" && *start != "eva" && *start != "orthogonal")
      unsupported.push_back("init_lora_weights '" + start->get<std::string>() + "'");
  if (const std::string bias = file.text({"bias"}, "none"); bias != "none")
    unsupported.push_back("bias '" + bias + "'");
  StoredAdapterConfig found{.base = file.text({"base_model_name_or_path"}, "")};
  found.lora.rank = file.needed({"r"}, kMostColumns);
  found.lora.alpha = file.real({"lora_alpha"}, 8);
  if (file.flag("use_rslora", false))  // alpha / sqrt(r)
    found.lora.alpha *= std::sqrt(static_cast<double>(found.lora.rank));
  const nlohmann::json* dropout = file.find({"lora_dropout"});
  if (dropout && !(dropout->is_number() && *dropout >= 0 && *dropout < 1))
    refuse(place, ": lora_dropout wants a number of at least 0 and below 1");
  found.lora.dropout = dropout ? dropout->get<double>() : 0;
  add_unread(file, unsupported);
  if (!unsupported.empty()) refuse(place, ": not supported in adapters: ", join(unsupported));
  return found;
}

}  // namespace

StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& place) {
  return adapters_of(parse_json_object(text, place), place);
}

StoredAdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = folder + "/adapter_config.json";
  return adapters_of(read_json_object(file), file);
}

std::string to_adapter_config(const ModelConfig& model, const std::string& base) {
  AXONN_CHECK(model.lora.rank > 0, "to_adapter_config: the model has no adapters");
  const Family* const family = find_family(model);
  const nlohmann::json config = {{"base_model_name_or_path", base},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", family && family->conv1d},
                                 {"inference_mode", true},
                                 {"init_lora_weights", true},
                                 {"lora_alpha", model.lora.alpha},
                                 {"lora_dropout", model.lora.dropout},
                                 {"modules_to_save", nullptr},
                                 {"peft_type", "LORA"},
                                 {"r", model.lora.rank},
                                 {"target_modules", model.lora.targets},
                                 {"task_type", "CAUSAL_LM"}};
  return config.dump(2) + "\n";
}

std::string adapted_layer(std::string_view parameter) {
  const std::size_t end = std::min(parameter.find(".lora_A."), parameter.find(".lora_B."));
  if (end == parameter.npos) return {};
  const std::string_view module = parameter.substr(0, end);
  return std::string(module.substr(module.rfind('.') + 1));
}

TensorNames adapter_names(const ModelConfig& model) {
  const Family* const family = find_family(model);
  AXONN_CHECK(family, "adapter_names: a registered family has no PEFT format");
  const ModelType* const type = find_type(*family, model);
  const auto name_of = [family, type, model](const std::string& parameter) {
    StoredName stored = family->stored_name(model, type, parameter);
    stored.transposed = false;  // even for a Conv1D, A is (r, in) and B is (out, r)
    // PEFT names modules as in the model with its head, which have the family's prefix.
    if (!family->prefix.empty()) std::ranges::reverse(stored.names);
    for (std::string& name : stored.names) name = "base_model.model." + name;
    return stored;
  };
  return {.of = name_of,
          .passed_over = [](std::string_view) { return false; },
          .config = "adapter_config.json"};
}

}  // namespace axonn
