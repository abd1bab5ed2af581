#pragma once

#include <string>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/data/text/model_text.h"
#include "axonn/network/model/hugging_face.h"

namespace axonn {

/// Writes the tokenizer and the chat template of a model, and generation_config.json with its ends,
/// into a folder of Hugging Face or PEFT. Files of the tokenizer's folder that state the same are
/// copied to the byte; the model's template and its ends take the place of others there. The
/// template's arguments become defaults of its variables. Adds to `warnings` what such files cannot
/// state. Returns the details of config.json that are tokens. Throws UsageError if the tokenizer
/// does not exist, or if one of its files is damaged.
HuggingFaceDetails write_text_files(const ModelText& text, const std::string& to,
                                    std::vector<std::string>& warnings);

/// The keys of a GGUF file for the tokenizer, filled up to `vocab` tokens, the chat template and
/// the ends: that of a text is eos, that of an assistant's turn eot, and a third one eom. llama.cpp
/// stops at all three. Adds to `warnings` as write_text_files(), and throws as
/// gguf_tokenizer_keys().
GgufKeys gguf_text_keys(const ModelText& text, std::int64_t vocab,
                        std::vector<std::string>& warnings);

}  // namespace axonn
