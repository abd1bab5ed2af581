#pragma once

#include <string>

#include "axonn/io/checkpoint.h"
#include "axonn/train/config.h"

namespace axonn {

/// The config that a checkpoint was trained with. Errors: UsageError as CheckpointReader, and if
/// the checkpoint's config.toml cannot be read.
Config stored_config(const CheckpointReader& reader);

/// config with the sizes of the model at model.path, where one is named: a checkpoint, or a Hugging
/// Face folder or config.json. For every process before its ranks start.
Config with_stored_model(Config config);

}  // namespace axonn
