#pragma once

#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/config.h"
#include "axonn/network/model/gguf_tensors.h"
#include "axonn/ranks/parallel/parameters.h"

namespace axonn {

/// The positions that programs which read GGUF may use: at most the window, because llama.cpp
/// attends to all positions in the architectures that can be written here.
std::int64_t gguf_positions(const ModelConfig& model);

/// What llama.cpp computes otherwise than a model that it reads, in sentences for users.
std::vector<std::string> gguf_differences(const ModelConfig& model);

/// The keys of a GGUF file that describe a model, as llama.cpp reads them. type: of the matrices.
/// Throws UsageError for a model whose type has no architecture there (GgufForm).
GgufKeys gguf_model_keys(const ModelConfig& model, const std::string& name, GgufType type);

/// The keys of parameters that llama.cpp has there instead of in tensors, such as xIELU's numbers
/// of each layer.
GgufKeys gguf_values(const ModelConfig& model, ParameterSource& source);

/// The keys of its tokenizer (make_tokenizer()), filled up to `vocab` tokens.
///
/// A byte-level BPE is of the kind "gpt2", with the name under which llama.cpp knows its pattern;
/// "bytes" is one without merges, whose end is a byte that no text has. tokenizer.model with BPE is
/// of the kind "llama". Throws UsageError for any other tokenizer, with the reason.
GgufKeys gguf_tokenizer_keys(const std::string& tokenizer, std::int64_t vocab);

}  // namespace axonn
