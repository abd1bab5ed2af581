#pragma once

#include <optional>
#include <string>

#include "axonn/io/checkpoint.h"
#include "axonn/train/session.h"

namespace axonn {

/// The config that a checkpoint was trained with. Errors: UsageError as CheckpointReader, and if
/// the checkpoint's config.toml cannot be read.
Config stored_config(const CheckpointReader& reader);

/// Whether path is a Hugging Face folder, or the config.json of one.
bool is_hugging_face(const std::string& path);

/// Whether a folder holds the files of a tokenizer.
bool has_tokenizer(const std::string& folder);

/// Whether path is a folder of adapters in PEFT's form.
bool is_adapter_folder(const std::string& path);

/// The adapters at path, a folder in PEFT's form or a checkpoint of adapters: rank, alpha, dropout
/// and targets, which are the layers that the files have. Errors: UsageError if there are none.
LoraConfig stored_lora(const std::string& path);

/// What a checkpoint keeps as config.toml: the run's, and what its model is, also where that
/// followed from model.path.
std::string stored_config_text(Config config, const Origins& origins);
/// The same of a model without a run.
std::string stored_config_text(const ModelConfig& model, const std::string& tokenizer);

/// config with the sizes of the model at model.path, where one is named: a checkpoint, or a Hugging
/// Face folder or config.json. Its tokenizer takes the place of "bytes". Where
/// lora.path names adapters, their rank, alpha and targets take the place of the config's. For
/// every process before its ranks start.
Config with_stored_model(Config config);

/// A model that is to be run, not trained.
struct StoredModel {
  Config config;  ///< the model's; the grid and the compute type may be set to others
  std::optional<CheckpointReader> reader = {};  ///< none if session.initialise() reads all there is
};

/// path: a checkpoint, the folder of several (the newest good one), or a Hugging Face folder;
/// adapter: as stored_lora(), or "" for none. For every process before its ranks start.
/// Errors: UsageError if path is none of them or is damaged, or holds adapters beside `adapter`.
StoredModel open_stored_model(const std::string& path, const std::string& adapter = {});

/// Sets the parameters of a session with the model's config. Collective. Errors: as
/// Session::load().
void load_parameters(Session& session, const StoredModel& model);

}  // namespace axonn
