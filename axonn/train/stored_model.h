#pragma once

#include <optional>
#include <string>

#include "axonn/storage/checkpoint/checkpoint.h"
#include "axonn/train/loaded_model.h"

namespace axonn {

/// Returns the config that a checkpoint was trained with. Throws UsageError as CheckpointReader
/// does, and if the checkpoint's config.toml cannot be read.
Config stored_config(const CheckpointReader& reader);

/// Whether path is a Hugging Face folder, or the config.json of one.
bool is_hugging_face(const std::string& path);

/// Whether a folder holds the files of a tokenizer.
bool has_tokenizer(const std::string& folder);

/// Whether path is a folder of adapters in PEFT's format.
bool is_adapter_folder(const std::string& path);

/// Returns rank, alpha, dropout and targets of the adapters at path: a folder in PEFT's format or a
/// checkpoint of adapters. The targets of a folder are the layers that its files hold. Throws
/// UsageError if there are none.
LoraConfig stored_lora(const std::string& path);

/// Returns the config.toml of a checkpoint: the run's config, with the model's sizes even if they
/// came from model.path.
std::string stored_config_text(Config config, const Origins& origins);
/// The same for a model without a run.
std::string stored_config_text(const ModelConfig& model, const std::string& tokenizer);

/// Returns config with the sizes of the model at model.path, if set: a checkpoint, or a Hugging
/// Face folder or config.json. A tokenizer there replaces "bytes". If lora.path is set, rank, alpha
/// and targets are those of the adapters there. Call it once per process, before its ranks start.
Config with_stored_model(Config config);

/// A model to run, not to train.
struct StoredModel {
  Config config;  ///< the model's; grid and compute type may be changed
  std::optional<CheckpointReader> reader =
      {};  ///< empty if LoadedModel::initialise() reads all parameters
};

/// Opens a model. path is a checkpoint, a folder of several (the newest valid one is taken), or a
/// Hugging Face folder; adapter is as in stored_lora(), or "" for none. Call it once per process,
/// before its ranks start. Throws UsageError if path is none of these or is damaged, or holds
/// adapters although `adapter` is given.
StoredModel open_stored_model(const std::string& path, const std::string& adapter = {});

/// Sets the parameters of a LoadedModel that has the model's config. Collective. Throws as
/// LoadedModel::load() does.
void load_parameters(LoadedModel& loaded, const StoredModel& model);

}  // namespace axonn
