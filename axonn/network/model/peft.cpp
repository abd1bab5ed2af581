#include "axonn/network/model/peft.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/json_reader.h"

namespace axonn {

namespace {

/// Keys that do not change what adapters compute: who wrote the file and how its training began.
constexpr std::array<std::string_view, 16> kHarmlessAdapterKeys = {
    "auto_mapping",      "base_model_class", "corda_config",   "eva_config",
    "fan_in_fan_out",    "inference_mode",   "loftq_config",   "lora_ga_config",
    "megatron_config",   "megatron_core",    "parent_library", "peft_version",
    "qalora_group_size", "revision",         "runtime_config", "task_type"};

/// Adds the keys that say that something is to be computed otherwise than models here do, which a
/// key does whose value is neither null, false nor empty.
void add_unread(const JsonReader& file, Unsupported& unsupported) {
  for (const std::string& key : file.unread(kHarmlessAdapterKeys))
    if (!says_nothing(*file.find({key.c_str()}))) unsupported.push_back(key);
}

/// A list of strings, or a string, which `text` takes.
std::vector<std::string> module_names(const JsonReader& file, const char* key,
                                      std::optional<std::string>& text) {
  const nlohmann::json* found = file.find({key});
  if (!found) return {};
  if (found->is_string()) {
    if (!found->get_ref<const std::string&>().empty()) text = found->get<std::string>();
    return {};
  }
  const auto is_text = [](const nlohmann::json& one) { return one.is_string(); };
  if (!found->is_array() || !std::ranges::all_of(*found, is_text))
    refuse(file.location(), ": ", key, " wants a list of names or a regular expression");
  return found->get<std::vector<std::string>>();
}

/// The entries of rank_pattern or alpha_pattern in the file's order: the first that matches counts.
PeftLayers::Patterns patterns(const JsonReader& file, const char* key,
                              const nlohmann::ordered_json& ordered) {
  PeftLayers::Patterns found;
  const nlohmann::json* object = file.find({key});
  if (!object) return found;
  if (!object->is_object()) refuse(file.location(), ": ", key, " wants an object");
  const bool ranks = std::string_view(key) == "rank_pattern";
  for (const auto& [regex, number] : ordered.at(key).items()) {
    if (!number.is_number() || !(number > 0) || (ranks && !number.is_number_integer()) ||
        number > kMostColumns)
      refuse(file.location(), ": ", key, ": '", regex, "' wants ",
             ranks ? "a rank of at least 1" : "a number above 0");
    found.emplace_back(regex, number.get<double>());
  }
  return found;
}

/// An integer or a list of them.
std::vector<std::int64_t> layers_to_transform(const JsonReader& file) {
  const nlohmann::json* found = file.find({"layers_to_transform"});
  if (found && found->is_number_unsigned() && *found <= kMostLayers)
    return {found->get<std::int64_t>()};
  return file.integers("layers_to_transform");
}

PeftLayers layers_of(const JsonReader& file, std::string_view text) {
  PeftLayers layers;
  const auto ordered = nlohmann::ordered_json::parse(text);
  layers.targets.ends = module_names(file, "target_modules", layers.targets.regex);
  std::optional<std::string> one;
  layers.saved = module_names(file, "modules_to_save", one);
  if (one) refuse(file.location(), ": modules_to_save wants a list of names");
  layers.excluded.ends = module_names(file, "exclude_modules", layers.excluded.regex);
  std::string targets = layers.targets.regex.value_or("");
  for (char& c : targets) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  layers.all = !file.find({"target_modules"}) || targets == "all-linear";
  std::optional<std::string> container;
  layers.containers = module_names(file, "layers_pattern", container);
  if (container) layers.containers = {*container};
  layers.layers = layers_to_transform(file);
  if (layers.targets.regex && !layers.layers.empty())
    refuse(file.location(),
           ": layers_to_transform wants target_modules to be a list of names, as in ", "PEFT");
  layers.ranks = patterns(file, "rank_pattern", ordered);
  layers.alphas = patterns(file, "alpha_pattern", ordered);
  layers.rank = file.needed({"r"}, kMostColumns);
  layers.alpha = file.real({"lora_alpha"}, 8);
  layers.rslora = file.flag("use_rslora", false);
  return layers;
}

StoredAdapterConfig adapters_of(std::string_view text, const std::string& location) {
  const nlohmann::json json = parse_json_object(text, location);
  const JsonReader file(json, location);
  const std::string type = file.text({"peft_type"}, "");
  if (type != "LORA")
    refuse(location, ": peft_type is '", type, "'; only LORA adapters are supported");
  Unsupported unsupported;
  // Others may change the base weights, too, which then differ from those of the named base model.
  if (const nlohmann::json* start = file.find({"init_lora_weights"}); start && start->is_string())
    if (*start != "gaussian" && *start != "eva" && *start != "orthogonal")
      unsupported.push_back("init_lora_weights '" + start->get<std::string>() + "'");
  StoredAdapterConfig found{.lora = {},
                            .layers = layers_of(file, text),
                            .base = file.text({"base_model_name_or_path"}, "")};
  found.lora.dora = file.flag("use_dora", false);
  found.ties = file.flag("ensure_weight_tying", false);
  found.bias = file.text({"bias"}, "none");
  if (found.bias != "none" && found.bias != "lora_only" && found.bias != "all")
    unsupported.push_back("bias '" + found.bias + "'");
  found.lora.rank = found.layers.rank;
  found.lora.alpha = found.layers.alpha;
  if (found.layers.rslora)  // alpha / sqrt(r)
    found.lora.alpha *= std::sqrt(static_cast<double>(found.lora.rank));
  const nlohmann::json* dropout = file.find({"lora_dropout"});
  if (dropout && !(dropout->is_number() && *dropout >= 0 && *dropout < 1))
    refuse(location, ": lora_dropout wants a number of at least 0 and below 1");
  found.lora.dropout = dropout ? dropout->get<double>() : 0;
  add_unread(file, unsupported);
  if (!unsupported.empty()) refuse(location, ": not supported in adapters: ", join(unsupported));
  return found;
}

constexpr std::string_view kMagnitude = ".lora_magnitude_vector";

/// "layers.0.self_attn.q_proj" of "layers.0.self_attn.q_proj.lora_A.weight", "" of parameters that
/// are no adapter's.
std::string_view adapted_module(std::string_view parameter) {
  std::size_t end = parameter.npos;
  for (const std::string_view kind :
       {std::string_view(".lora_A."), std::string_view(".lora_B."), kMagnitude,
        std::string_view(".lora_embedding_A"), std::string_view(".lora_embedding_B")})
    end = std::min(end, parameter.find(kind));
  return end == parameter.npos ? std::string_view() : parameter.substr(0, end);
}

/// The names of a module's weight as those of a factor of its adapter.
std::vector<std::string> of_factor(std::vector<std::string> weights, std::string_view factor) {
  constexpr std::string_view kWeight = ".weight";
  for (std::string& name : weights)
    name.replace(name.size() - kWeight.size(), kWeight.size(), factor);
  return weights;
}

/// How PEFT stores a factor, ".lora_A.weight" or ".lora_B.weight", of a module whose weight is
/// stored so. Parts of one tensor share A; B has their rows.
StoredName stored_factor(const StoredName& weight, std::string_view factor) {
  if (!weight.joined.usual) return {.names = of_factor(weight.names, factor)};
  StoredName::Joined joined = weight.joined;
  joined.names = of_factor(weight.joined.names, factor);
  if (factor.starts_with(".lora_A")) return {.names = std::move(joined.names)};
  return {.names = {}, .joined = std::move(joined)};
}

bool module_is_embedding(const Family& family, std::string_view parameter) {
  const std::string_view module = adapted_module(parameter);
  return !module.empty() && family.embedding == concat(module, ".weight");
}

/// PEFT's A of an embedding is (r, vocabulary), the transpose of B here; its B (width, r) of A.
StoredName embedding_factor(StoredName stored, std::string_view parameter) {
  const bool a = parameter.ends_with(".lora_A.weight");
  for (std::string& name : stored.names)
    name = name.substr(0, name.rfind(".lora_")) + (a ? ".lora_embedding_B" : ".lora_embedding_A");
  stored.transposed = true;
  return stored;
}

}  // namespace

std::string without_peft_prefix(std::string name) {
  if (name.starts_with(kPeftPrefix)) name.erase(0, kPeftPrefix.size());
  return name;
}

StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& location) {
  return adapters_of(text, location);
}

StoredAdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = folder + "/adapter_config.json";
  return adapters_of(read_json_text(file), file);
}

void refuse_left_out(const std::string& folder, std::string_view module) {
  refuse(folder, " has adapters of '", module, "', which its adapter_config.json leaves out, so ",
         "PEFT does not read them; correct target_modules, exclude_modules, modules_to_save or ",
         "layers_to_transform there");
}

namespace {

/// Adds the module of a tensor that was trained whole.
void add_whole(LoraConfig& lora, const std::string& tensor) {
  std::string module = without_peft_prefix(tensor);
  if (module.find(".base_layer.") != module.npos) return;  // of the base model
  module.erase(module.rfind('.'));
  if (std::ranges::find(lora.modules, module) == lora.modules.end())
    lora.modules.push_back(std::move(module));
}

}  // namespace

LoraConfig stored_adapters(const StoredAdapterConfig& stored, std::span<const std::string> tensors,
                           const std::string& folder) {
  std::vector<AdaptedModule> modules;
  LoraConfig lora = stored.lora;
  lora.targets = stored.layers.targets.ends;
  for (const std::string& tensor : tensors) {
    const std::string module = without_peft_prefix(std::string(adapted_module(tensor)));
    if (module.empty()) add_whole(lora, tensor);
    if (module.empty() || std::ranges::find(modules, module, &AdaptedModule::name) != modules.end())
      continue;
    const auto adapter = peft_adapter(stored.layers, module);
    if (!adapter) refuse_left_out(folder, module);
    if (stored.layers.all) lora.targets.push_back(last_part(module));
    modules.push_back({module, *adapter});
  }
  if (modules.empty()) refuse(folder, " has no tensors of adapters");
  set_layers(lora, modules);
  return lora;
}

void name_layers(LoraConfig& lora, std::span<const AdaptedModule> modules,
                 std::span<const std::string> whole) {
  lora.modules.clear();
  for (const std::string& parameter : whole) add_whole(lora, parameter);
  if (lora.targets.empty())
    for (const AdaptedModule& module : modules) lora.targets.push_back(last_part(module.name));
  set_layers(lora, modules);
}

std::string to_adapter_config(const ModelConfig& model, const std::string& base) {
  AXONN_CHECK(model.lora.rank > 0, "to_adapter_config: the model has no adapters");
  const Family* const family = find_family(model);
  const auto pattern = [](const std::vector<std::string>& entries) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (const std::string& entry : entries) {
      const auto [name, number] = parse_layer_number(entry);
      const auto whole = static_cast<std::int64_t>(number);
      object.emplace(name, number);
      if (static_cast<double>(whole) == number) object[std::string(name)] = whole;
    }
    return object;
  };
  nlohmann::ordered_json config = {{"alpha_pattern", pattern(model.lora.alpha_pattern)},
                                   {"base_model_name_or_path", base},
                                   {"bias", "none"},
                                   {"fan_in_fan_out", family && family->conv1d},
                                   {"inference_mode", true},
                                   {"init_lora_weights", true},
                                   {"layers_to_transform", nullptr},
                                   {"lora_alpha", model.lora.alpha},
                                   {"lora_dropout", model.lora.dropout},
                                   {"modules_to_save", nullptr},
                                   {"peft_type", "LORA"},
                                   {"r", model.lora.rank},
                                   {"rank_pattern", pattern(model.lora.rank_pattern)},
                                   {"target_modules", model.lora.targets},
                                   {"task_type", "CAUSAL_LM"},
                                   {"use_dora", model.lora.dora}};
  if (!model.lora.modules.empty()) config["modules_to_save"] = model.lora.modules;
  if (!model.lora.layers.empty()) config["layers_to_transform"] = model.lora.layers;
  return config.dump(2) + "\n";
}

void check_written_adapters(const ModelConfig& model, std::span<const AdaptedModule> modules) {
  for (const auto& [module, adapter] : modules) {
    const std::string name = last_part(module);
    if (model.experts > 0 && (name == "gate_proj" || name == "up_proj" || name == "down_proj"))
      refuse(
          "adapters of '", module, "' are not written in PEFT's format: with transformers 5 PEFT ",
          "gives those of '", name, "' to the experts; merge them into their base model with ",
          "axonn convert --merge, or train without: [lora] targets ", model.attention_products());
  }
}

TensorNames adapter_names(const ModelConfig& model) {
  const Family* const family = find_family(model);
  AXONN_CHECK(family, "adapter_names: a registered family has no PEFT format");
  const ModelType* const type = find_type(*family, model);
  const auto name_of = [family, type, model](const std::string& parameter) {
    const auto stored_name = [&](const std::string& of) {
      return family->stored_name(model, type, of);
    };
    const std::string module(adapted_module(parameter));
    StoredName stored;
    if (module.empty()) {
      stored = stored_name(parameter);
      if (stored.joined.usual)
        refuse("the module of ", parameter, " has no PEFT format: files of the type ", type->name,
               " have ", stored.joined.names.front(), " for it and others together");
      stored.joined = {};
    } else {
      // Even of a Conv1D, A is (r, in) and B is (out, r).
      stored = stored_factor(stored_name(module + ".weight"), parameter.substr(module.size()));
    }
    if (module_is_embedding(*family, parameter)) stored = embedding_factor(stored, parameter);
    // PEFT names modules as in the model with its head, which have the family's prefix.
    if (!family->prefix.empty()) std::ranges::reverse(stored.names);
    if (parameter.starts_with("lm_head.")) stored.names = {parameter};
    for (auto* const names : {&stored.names, &stored.joined.names}) {
      if (parameter.ends_with(kMagnitude))  // files of some versions have it as a module's weight
        for (std::size_t i = 0, count = names->size(); i < count; ++i)
          names->push_back((*names)[i] + ".weight");
      for (std::string& name : *names) name.insert(0, kPeftPrefix);
    }
    return stored;
  };
  // Base layers of adapted embeddings and heads have the values of the base (peft_merge.h).
  const auto of_base = [](std::string_view tensor) {
    return tensor.find(".base_layer.") != tensor.npos;
  };
  return {.of = name_of, .passed_over = of_base, .config = "adapter_config.json"};
}

}  // namespace axonn
