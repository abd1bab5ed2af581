#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/network/nn/adapters/layer_adapters.h"

namespace axonn {

/// Names of modules in adapter_config.json: a regular expression of whole names, or the ends of
/// names.
struct ModuleNames {
  std::optional<std::string> regex;
  std::vector<std::string> ends;
};

/// The keys of adapter_config.json that say which modules have adapters, and with which rank and
/// alpha. Modules are named as in the model with its head: "model.layers.0.self_attn.q_proj".
struct PeftLayers {
  /// A regular expression of the end of a name, and a number; the first that matches counts.
  using Patterns = std::vector<std::pair<std::string, double>>;

  bool all = true;                           ///< target_modules is missing or "all-linear"
  ModuleNames targets, excluded;             ///< target_modules, exclude_modules
  std::vector<std::string> saved = {};       ///< modules_to_save, which have no adapters
  std::vector<std::int64_t> layers = {};     ///< layers_to_transform; counts for ends alone
  std::vector<std::string> containers = {};  ///< layers_pattern: regular expressions
  Patterns ranks = {}, alphas = {};          ///< rank_pattern, alpha_pattern
  std::int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;  ///< scales by alpha / sqrt(rank)
};

/// The adapter that PEFT gives a module, with alpha so that alpha / rank is its scale; empty if
/// none. Throws UsageError for a regular expression that is none.
std::optional<LayerAdapter> peft_adapter(const PeftLayers& layers, std::string_view module);

/// "q_proj" of "layers.0.self_attn.q_proj".
std::string last_part(const std::string& name);

/// An adapted module of a model, by its name there or in PEFT's files.
struct AdaptedModule {
  std::string name;
  LayerAdapter adapter;
};

/// Sets targets, layers and patterns such that these modules alone have adapters, with these ranks
/// and alphas. lora has the rank and alpha of all others, and as targets the names that stand for
/// all layers of such a name, which are kept.
void set_layers(LoraConfig& lora, std::span<const AdaptedModule> modules);

}  // namespace axonn
