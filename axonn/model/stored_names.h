#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "axonn/model/config.h"

namespace axonn {

/// How Hugging Face's files of a family store a parameter.
struct StoredName {
  std::vector<std::string> names;  ///< the usual one first; a file has one of them
  bool transposed = false;         ///< stored as (in, out), as in GPT-2's Conv1D
};
StoredName stored_name(ModelFamily family, const std::string& parameter);

/// The same for an adapter's parameter in PEFT's files.
StoredName stored_adapter_name(ModelFamily family, const std::string& parameter);

/// The adapted layer: "q_proj" for "model.layers.0.self_attn.q_proj.lora_A.weight"; "" for a
/// parameter that is not an adapter's.
std::string adapted_layer(std::string_view parameter);

/// Whether a tensor in such a file is not a parameter: a buffer that older versions saved, or the
/// weight of a tied output layer.
bool is_buffer(const ModelConfig& config, std::string_view tensor);

}  // namespace axonn
