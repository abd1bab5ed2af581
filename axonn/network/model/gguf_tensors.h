#pragma once

#include <span>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/network/model/config.h"
#include "axonn/ranks/parallel/flat_layout.h"

namespace axonn {

struct Family;
struct ModelType;

/// The family and the type of a model that llama.cpp has, too. Throws UsageError if it has no such
/// models.
struct GgufModel {
  explicit GgufModel(const ModelConfig& model);

  const Family* family;
  const ModelType* type;
};

/// The tensors: the model's parameters under llama.cpp's names, vectors in F32. In architecture
/// "llama", the rows of queries and keys are interleaved. A matrix whose rows are no whole blocks
/// has another type (type_for_rows()). Llama 3.1's scaled frequencies are a tensor of their own.
std::vector<GgufTensor> gguf_tensors(const ModelConfig& model,
                                     std::span<const ParameterSpec> parameters, GgufType type);

}  // namespace axonn
