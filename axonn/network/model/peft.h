#pragma once

#include <span>
#include <string>
#include <string_view>

#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/network/model/config.h"
#include "axonn/network/model/peft_layers.h"

namespace axonn {

// Folders of adapters in the format of Hugging Face's PEFT.

/// The names that PEFT gives modules begin so in files.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";
/// A name without that prefix, if it has one.
std::string without_peft_prefix(std::string name);

/// The contents of adapter_config.json.
struct StoredAdapterConfig {
  LoraConfig lora;            ///< rank, alpha, dropout and dora alone
  PeftLayers layers;          ///< which modules have adapters
  bool ties = false;          ///< ensure_weight_tying
  std::string bias = "none";  ///< which biases are trained: none, lora_only, all
  std::string base;           ///< base_model_name_or_path; a path, a name on the hub, or ""
};

/// Throws UsageError as parse_hugging_face_config() does, and for features that adapters here do
/// not support.
StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& location);
/// Reads adapter_config.json of a folder; throws as parse_adapter_config() does.
StoredAdapterConfig read_adapter_config(const std::string& folder);
/// Throws the UsageError for tensors of a module that adapter_config.json leaves out.
[[noreturn]] void refuse_left_out(const std::string& folder, std::string_view module);
/// The adapters that a folder with this config and these tensors has. Throws UsageError if there
/// are none, and for tensors of modules that the config does not name, which PEFT does not read.
LoraConfig stored_adapters(const StoredAdapterConfig& stored, std::span<const std::string> tensors,
                           const std::string& folder);
/// The text for model.lora, which must list its targets. `base`: base_model_name_or_path.
std::string to_adapter_config(const ModelConfig& model, const std::string& base);

/// Sets lora's targets, layers and patterns to those that name these modules one by one, as files
/// of PEFT need them, and its modules to those of `whole`, the parameters that are trained whole.
void name_layers(LoraConfig& lora, std::span<const AdaptedModule> modules,
                 std::span<const std::string> whole = {});

/// The names in a folder of the model's adapters. Parts of a product that files join, such as q, k
/// and v, have the same A there, and their rows of B.
TensorNames adapter_names(const ModelConfig& model);
/// Throws UsageError for adapters of modules, by PEFT's names, that it would take for those of
/// other modules.
void check_written_adapters(const ModelConfig& model, std::span<const AdaptedModule> modules);

}  // namespace axonn
