#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/model/config.h"
#include "axonn/parallel/parameters.h"
#include "axonn/storage/parameter_source.h"

namespace axonn {

/// A model on disk, or the adapters of one, whose parameters are read one by one.
struct OpenedModel {
  std::string path;
  bool hugging_face = false;        ///< Hugging Face's format or PEFT's; false: a checkpoint
  ModelConfig config;               ///< resolved; if lora.rank > 0, parameters holds only adapters
  std::string base = {};            ///< base model of adapters, or ""
  std::string tokenizer = "bytes";  ///< as in data.tokenizer
  StoredType type = StoredType::f32;        ///< of its tensors in Hugging Face's format
  std::string prefix = {};                  ///< of their names in that format
  std::vector<ParameterSpec> parameters;    ///< in the order of the forward pass
  std::shared_ptr<ParameterSource> source;  ///< of the parameters' values
};

/// Opens a Hugging Face folder, a checkpoint, or the newest of a folder of checkpoints; a
/// checkpoint may be one of adapters. Throws UsageError as read_hugging_face_config(),
/// find_tensors() and CheckpointReader do, and if a checkpoint is not of the model that its
/// config.toml describes.
OpenedModel open_model(const std::string& path);

/// Opens adapters of a model of these sizes: a folder in PEFT's format, or a checkpoint of
/// adapters. Throws as open_model() does, and UsageError if there are no adapters, or those of
/// another model.
OpenedModel open_adapters(const std::string& path, const ModelConfig& base);

/// Returns `base` with the adapters merged into it: weight + alpha / rank · B · A, computed in f32
/// while it is read, with this many threads. Throws UsageError if the adapters are another model's.
OpenedModel merged(OpenedModel base, const OpenedModel& adapters, int threads);

/// Name and contents of a text file in a checkpoint that was made from a Hugging Face folder. It
/// records the folder's type and name prefix, so that converting back restores them.
inline constexpr const char* kOriginName = "hugging_face.json";
std::string origin_text(const OpenedModel& model);

}  // namespace axonn
