#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// Reads the sizes of a model from the text of a Hugging Face config.json of any model_type that a
/// family has (families/), in older and newer spellings. A missing key has the default that
/// transformers gives it. Keys that only change a training are not read: see
/// unread_training_keys(). `location` names the file in messages.
///
/// Throws UsageError for other files, for values of a wrong type or out of range, and for features
/// that models here do not support (other types, other kinds of rope scaling, quantized weights,
/// ...), which one message lists. Adds a note for keys that the type does not have, which
/// transformers ignores, too: those of another type in a file that somebody has edited.
ModelConfig parse_hugging_face_config(std::string_view text, const std::string& location,
                                      std::vector<std::string>* notes = nullptr);

/// Reads a file, or config.json in a folder. Also throws UsageError if it cannot be read.
ModelConfig read_hugging_face_config(const std::string& path,
                                     std::vector<std::string>* notes = nullptr);

/// Keys of a Hugging Face config.json that change how transformers trains the model, and that
/// trainings here do not read.
struct UnreadTrainingKeys {
  /// Probabilities of dropout above 0, those that the type has by default included:
  /// "attn_pdrop = 0.1".
  std::vector<std::string> dropout = {};
  /// router_aux_loss_coef, if output_router_logits is true; else 0.
  double balance = 0;
};
UnreadTrainingKeys unread_training_keys(std::string_view text, const std::string& location);
/// Reads a file, or config.json in a folder. Throws as read_hugging_face_config().
UnreadTrainingKeys read_unread_training_keys(const std::string& path);

/// The contents of a Hugging Face config.json that are not sizes.
struct HuggingFaceDetails {
  std::string type = "float32";  ///< of the tensors, as PyTorch names it
  bool nf4 = false;              ///< whether linear layers are in NF4 of bitsandbytes
  std::optional<std::int64_t> begin_of_text = {}, pad = {};  ///< tokens
  std::vector<std::int64_t> ends = {};                       ///< the tokens that end an answer
};

/// The text of config.json, of the model_type that has the model's options. router_aux_loss_coef is
/// the type's default. parse_hugging_face_config() reads it back. Throws UsageError with the keys
/// of [model] that no type supports.
std::string to_hugging_face_config(const ModelConfig& model, const HuggingFaceDetails& details);
/// The text of generation_config.json.
std::string to_generation_config(const HuggingFaceDetails& details);

/// Throws UsageError that names `location` for sizes that no model has, as a hostile file may say.
void check_whole(const ModelConfig& model, const std::string& location);

/// The names in a Hugging Face folder of a model. Tensors of newer versions, which join all experts
/// of a layer, can be read, but are not written. Passed over are buffers that older versions saved,
/// and the weight of a tied output layer, which is read where the embedding is missing.
TensorNames base_names(const ModelConfig& model);

/// Whether a tensor or parameter is of a layer with a number of `layers` or more.
bool is_beyond(std::string_view name, std::int64_t layers);

/// Whether a model that is tied by its config.json has an output layer of its own in its folder, as
/// merged adapters of that layer have. Reads the values of both up to the first difference.
bool has_own_head(const ModelConfig& model, const SafetensorsFolder& folder);
/// Whether a model has its mtp_layers in its folder. transformers states them, and writes none.
bool has_mtp_layers(const ModelConfig& model, const SafetensorsFolder& folder);

}  // namespace axonn
