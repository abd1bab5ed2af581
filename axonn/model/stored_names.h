#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "axonn/model/config.h"

namespace axonn {

/// How Hugging Face's files of a family hold a parameter.
struct StoredName {
  std::vector<std::string> names;  ///< the usual one first; a file has one of them
  bool transposed = false;         ///< (in, out), as GPT-2's Conv1D has it
};
StoredName stored_name(ModelFamily family, const std::string& parameter);

/// The same of a parameter of an adapter, as PEFT has it.
StoredName stored_adapter_name(ModelFamily family, const std::string& parameter);

/// "q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight"; "" of what is no adapter's.
std::string adapted_layer(std::string_view parameter);

/// Whether a tensor of such a file is no parameter: buffers that older versions saved, and logits'
/// weights that are the embedding's.
bool is_buffer(const ModelConfig& config, std::string_view tensor);

}  // namespace axonn
