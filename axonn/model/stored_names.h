#pragma once

#include <string>
#include <string_view>

#include "axonn/model/config.h"
#include "axonn/storage/safetensors/safetensors_source.h"

namespace axonn {

/// How Hugging Face's files of a family store a parameter.
StoredName stored_name(ModelFamily family, const std::string& parameter);

/// The same for an adapter's parameter in PEFT's files.
StoredName stored_adapter_name(ModelFamily family, const std::string& parameter);

/// The adapted layer: "q_proj" for "model.layers.0.self_attn.q_proj.lora_A.weight"; "" for a
/// parameter that is not an adapter's.
std::string adapted_layer(std::string_view parameter);

/// The names in a Hugging Face folder of a model. Passed over are buffers that older versions
/// saved, and the weight of a tied output layer.
TensorNames base_names(const ModelConfig& config);
/// The names in a folder of the model's adapters in PEFT's format.
TensorNames adapter_names(const ModelConfig& config);

}  // namespace axonn
