#pragma once

#include <string>

#include "axonn/io/checkpoint.h"
#include "axonn/train/config.h"

namespace axonn {

/// The config that a checkpoint was trained with. Errors: UsageError as CheckpointReader, and if
/// the checkpoint's config.toml cannot be read.
Config stored_config(const CheckpointReader& reader);

/// Whether path is a Hugging Face folder, or the config.json of one.
bool is_hugging_face(const std::string& path);

/// config with the sizes of the model at model.path, where one is named: a checkpoint, or a Hugging
/// Face folder or config.json. Such a folder's tokenizer takes the place of "bytes". For every
/// process before its ranks start.
Config with_stored_model(Config config);

}  // namespace axonn
