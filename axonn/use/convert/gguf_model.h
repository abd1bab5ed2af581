#pragma once

#include <string>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// What llama.cpp computes otherwise than a model that it reads, in sentences for users.
std::vector<std::string> gguf_differences(const ModelConfig& model);

/// The keys of its tokenizer (make_tokenizer()), filled up to `vocab` tokens.
///
/// A byte-level BPE is of the kind "gpt2", with the name under which llama.cpp knows its pattern;
/// "bytes" is one without merges, whose end is a byte that no text has. tokenizer.model with BPE is
/// of the kind "llama". Throws UsageError for any other tokenizer, with the reason.
GgufKeys gguf_tokenizer_keys(const std::string& tokenizer, std::int64_t vocab);

}  // namespace axonn
