#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// The factors by which the file divides rotary frequencies; empty: it has none. Throws UsageError
/// if the file is damaged.
std::vector<float> gguf_rotary_factors(const GgufFile& file);

/// The source of these parameters of a model in a GGUF file, as f32. Tensors have the names and the
/// order of rows of gguf_tensors(), and any of gguf_block_types(). Throws UsageError that lists
/// every tensor that is missing, unknown, of other sizes or of another type, or cut short.
std::unique_ptr<ParameterSource> gguf_source(std::shared_ptr<const GgufFile> file,
                                             const ModelConfig& model,
                                             std::vector<StoredParameter> parameters);

}  // namespace axonn
