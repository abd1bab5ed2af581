#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "axonn/model/config.h"
#include "axonn/storage/safetensors/safetensors_source.h"

namespace axonn {

/// Reads the sizes of a model from the text of a Hugging Face config.json of model_type gpt2,
/// llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, olmoe or apertus, in older and newer
/// spellings. A missing key has the default that transformers gives it. router_aux_loss_coef and
/// output_router_logits are not read: training.balance sets what a training adds to the loss.
/// `place` names the file in messages.
///
/// Throws UsageError for other files, for values of a wrong type or out of range, and for features
/// that models here do not support (other types, other kinds of rope scaling, quantized weights,
/// ...), which one message lists.
ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place);

/// The same for a file, or for config.json in a folder. Also throws if it cannot be read.
ModelConfig read_hugging_face_config(const std::string& path);

/// The contents of a Hugging Face config.json that are not sizes.
struct HuggingFaceDetails {
  std::string type = "float32";  ///< of the tensors, as PyTorch names it
  std::optional<std::int64_t> begin_of_text = {}, end_of_text = {};  ///< tokens
};

/// The text of config.json: GPT-2's; or in the llama family Qwen3's with qk_norm, Qwen2's with
/// qkv_bias, Mistral's with a window, Apertus's with xIELU, else Llama's. With experts: Qwen3-MoE's
/// with qk_norm of each head, OLMoE's over the width, Mixtral's without; router_aux_loss_coef is
/// the type's default. parse_hugging_face_config() reads it back. Throws UsageError with the keys
/// of [model] that the type does not support.
std::string to_hugging_face_config(const ModelConfig& model, const HuggingFaceDetails& details);
/// The text of generation_config.json.
std::string to_generation_config(const HuggingFaceDetails& details);

/// The contents of PEFT's adapter_config.json: the adapters' rank, alpha and dropout and their base
/// model; not their targets, which may be patterns there.
struct StoredAdapterConfig {
  LoraConfig lora;
  std::string base;  ///< base_model_name_or_path; a path, a name on the hub, or ""
};

/// Throws UsageError as parse_hugging_face_config() does, and for features that adapters here do
/// not support.
StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& place);
/// The same for the file in a folder.
StoredAdapterConfig read_adapter_config(const std::string& folder);
/// The text for model.lora, which must list its targets. `base`: base_model_name_or_path.
std::string to_adapter_config(const ModelConfig& model, const std::string& base);

/// The adapted layer: "q_proj" for "model.layers.0.self_attn.q_proj.lora_A.weight"; "" for a
/// parameter that is not an adapter's.
std::string adapted_layer(std::string_view parameter);

/// The names in a Hugging Face folder of a model. Mixtral's experts and Apertus's norms have other
/// names there than here; the tensors of newer versions, which join all experts of a layer, can be
/// read, but are not written. Passed over are buffers that older versions saved, and the weight of
/// a tied output layer. xIELU's beta and eps are numbers of the folder.
TensorNames base_names(const ModelConfig& config);
/// The names in a folder of the model's adapters in PEFT's format.
TensorNames adapter_names(const ModelConfig& config);

}  // namespace axonn
