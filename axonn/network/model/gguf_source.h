#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// Reads the sizes of a model from the keys of a GGUF file, of the architectures llama (with
/// experts Mixtral), gpt2, qwen2, qwen3, qwen3moe and olmoe. Throws UsageError for others, for keys
/// of the architecture that are not read, and as parse_hugging_face_config().
ModelConfig read_gguf_config(const GgufFile& file);

/// The source of these parameters of a model in a GGUF file, as f32. Tensors have the names and the
/// order of rows of gguf_tensors(), and any of gguf_block_types(). Throws UsageError that lists
/// every tensor that is missing, unknown, of other sizes or of another type, or cut short.
std::unique_ptr<ParameterSource> gguf_source(std::shared_ptr<const GgufFile> file,
                                             const ModelConfig& model,
                                             std::vector<StoredParameter> parameters);

}  // namespace axonn
