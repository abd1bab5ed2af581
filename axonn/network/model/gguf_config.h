#pragma once

#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// Reads a model's options from a GGUF file of an architecture that is written here, and compares
/// all keys of the architecture with those of gguf_model_keys(). Throws UsageError that names what
/// the file says otherwise, or what is not read and may change the model.
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace axonn
