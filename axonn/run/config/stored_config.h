#pragma once

#include <span>
#include <string>

#include "axonn/run/config/config.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

class CheckpointReader;
class Origins;
enum class StoredWeights;

/// Returns the config that a checkpoint was trained with. Throws UsageError if the checkpoint's
/// config.toml cannot be read.
Config stored_config(const CheckpointReader& reader);
/// The same without [optimizer], which may be another program's: to run the model, not to train it.
Config stored_config_to_run(const CheckpointReader& reader);

/// Returns the config.toml of a checkpoint: the run's config, with the model's sizes even if they
/// came from model.path.
std::string stored_config_text(Config config, const Origins& origins);
/// The stored config of a model without a run.
std::string stored_config_text(const ModelConfig& model, const std::string& tokenizer);

/// Returns config with the adapters at path: their rank, alpha, dropout and targets, and their
/// files. Throws as ModelFiles::of_adapters() does.
Config with_stored_adapters(Config config, const std::string& path);

/// Returns the config to run a model, see below, with adapters at these paths as its
/// lora.choices: its sequences may use one each. Throws UsageError as ModelFiles::of_adapters()
/// does, if the model has adapters already, and for adapters that are only merged.
Config with_adapter_choices(Config config, std::span<const std::string> paths);

/// Returns config with the sizes and files of the model at model.path, if set. Its tokenizer
/// replaces "bytes", also if it is not known (""), unless the origins say that the user set
/// "bytes". If lora.path is set, rank, alpha and targets are those of the adapters there. Call it
/// once per process, before its ranks start. Throws UsageError as ModelFiles does, and if a path
/// holds adapters instead of a model, or the reverse.
Config with_stored_model(Config config, const Origins& origins);

/// Returns the config to run a model, not to train it: LoadedModel::initialise() then reads the
/// parameters. path is a checkpoint, a folder of checkpoints (the newest), or a Hugging Face
/// folder; adapter, if not empty, holds adapters for it. The grid is that of the training, or of
/// one rank; parallelism and training.dtype may be changed. Call it once per process, before its
/// ranks start. Throws UsageError if there is no model, if it cannot be read, or if path holds
/// adapters although `adapter` is given.
Config config_of_model(const std::string& path, const std::string& adapter = {});

/// The model of a folder on the grid of a run, with its precision and batch: as its reference or
/// its teacher. Throws likewise.
PreparedRun model_beside(const Config& run, const std::string& path);

/// The config of a model with these weights of a checkpoint, as ModelFiles takes them.
Config config_of_model(const std::string& path, const std::string& adapter, StoredWeights weights);

/// Returns config with a vocab of 0 replaced by the size of the tokenizer that data.tokenizer
/// names. Throws UsageError if it names none, or if there is no such tokenizer.
Config with_vocab(Config config);

}  // namespace axonn
