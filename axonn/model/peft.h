#pragma once

#include <string>
#include <string_view>

#include "axonn/model/config.h"
#include "axonn/storage/safetensors/safetensors_source.h"

namespace axonn {

// Folders of adapters in the format of Hugging Face's PEFT.

/// The contents of adapter_config.json: the adapters' rank, alpha and dropout and their base model;
/// not their targets, which may be patterns there.
struct StoredAdapterConfig {
  LoraConfig lora;
  std::string base;  ///< base_model_name_or_path; a path, a name on the hub, or ""
};

/// Throws UsageError as parse_hugging_face_config() does, and for features that adapters here do
/// not support.
StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& place);
/// Reads adapter_config.json of a folder; throws as parse_adapter_config() does.
StoredAdapterConfig read_adapter_config(const std::string& folder);
/// The text for model.lora, which must list its targets. `base`: base_model_name_or_path.
std::string to_adapter_config(const ModelConfig& model, const std::string& base);

/// The adapted layer: "q_proj" for "model.layers.0.self_attn.q_proj.lora_A.weight"; "" for a
/// parameter that is not an adapter's.
std::string adapted_layer(std::string_view parameter);

/// The names in a folder of the model's adapters.
TensorNames adapter_names(const ModelConfig& model);

}  // namespace axonn
