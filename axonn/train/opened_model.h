#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/io/parameter_source.h"
#include "axonn/model/config.h"
#include "axonn/parallel/parameters.h"

namespace axonn {

/// A model on disk, or the adapters of one, of which parameters are read one by one.
struct OpenedModel {
  std::string path;
  bool hugging_face = false;  ///< or PEFT's; else a checkpoint
  ModelConfig config;         ///< resolved. With config.lora: the parameters are adapters' alone
  std::string base = {};      ///< of adapters: the model that they are of, or ""
  std::string tokenizer = "bytes";          ///< as data.tokenizer has it
  StoredType type = StoredType::f32;        ///< of its tensors in Hugging Face's form
  std::string prefix = {};                  ///< before their names there
  std::vector<ParameterSpec> parameters;    ///< in the order of the forward pass
  std::shared_ptr<ParameterSource> source;  ///< of their values
};

/// Opens a Hugging Face folder, or a checkpoint or the newest of a folder of them, which may be one
/// of adapters. Errors: UsageError, as read_hugging_face_config(), find_tensors() and
/// CheckpointReader, and if a checkpoint is not of the model that its config.toml describes.
OpenedModel open_model(const std::string& path);

/// Opens adapters of a model of these sizes: a folder in PEFT's form, or a checkpoint of adapters.
/// Errors: also UsageError if they are none, or of another model.
OpenedModel open_adapters(const std::string& path, const ModelConfig& base);

/// What `base` is with the adapters merged into it: weight + alpha / rank · B · A, computed in f32
/// as it is read, by so many threads. Errors: UsageError if they are another model's.
OpenedModel merged(OpenedModel base, const OpenedModel& adapters, int threads);

/// A text of a checkpoint that was made from a Hugging Face folder, and what it says: what the way
/// back should write.
inline constexpr const char* kOriginName = "hugging_face.json";
std::string origin_text(const OpenedModel& model);

}  // namespace axonn
