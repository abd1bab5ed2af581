#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "axonn/model/config.h"

namespace axonn {

/// The sizes of a model from the text of a Hugging Face config.json of model_type gpt2, llama,
/// mistral, qwen2 or qwen3, in older and newer spellings. What the file leaves out has the default
/// that transformers has for it. `place` stands for the file in messages.
///
/// Errors: UsageError for what is no such file, for values of a wrong type or out of range, and for
/// what a model here cannot be (other types, other kinds of rope scaling, quantized weights, ...),
/// all of it in one message.
ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place);

/// The same of a file, or of the config.json of a folder. Errors: also where it cannot be read.
ModelConfig read_hugging_face_config(const std::string& path);

/// What a Hugging Face folder says of a model besides its sizes.
struct HuggingFaceDetails {
  std::string type = "float32";  ///< of the tensors, as PyTorch calls it
  std::optional<std::int64_t> begin_of_text = {}, end_of_text = {};  ///< tokens
};

/// The text of config.json: GPT-2's, or Qwen3's where the model has qk_norm, Qwen2's where it has
/// qkv_bias, Mistral's where it has a window, else Llama's. What it says is what
/// parse_hugging_face_config() reads.
/// Errors: UsageError that names the keys of [model] that none of them has.
std::string to_hugging_face_config(const ModelConfig& model, const HuggingFaceDetails& details);
/// The text of generation_config.json.
std::string to_generation_config(const HuggingFaceDetails& details);

/// What PEFT's adapter_config.json says: rank, alpha and dropout of adapters, not their targets,
/// which may be patterns there, and the model that they are of.
struct StoredAdapterConfig {
  LoraConfig lora;
  std::string base;  ///< base_model_name_or_path; a path, a name on the hub, or ""
};

/// Errors: UsageError, as parse_hugging_face_config(), for what adapters here cannot be.
StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& place);
/// The same of the file in a folder.
StoredAdapterConfig read_adapter_config(const std::string& folder);
/// The text for model.lora, whose targets are named. `base`: base_model_name_or_path.
std::string to_adapter_config(const ModelConfig& model, const std::string& base);

}  // namespace axonn
