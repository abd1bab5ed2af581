#pragma once

#include <span>

#include "axonn/network/model/families/family.h"
#include "axonn/network/model/json_reader.h"

namespace axonn {

/// GPT-2: learned positions, LayerNorm, GELU; key-value heads may be fewer than query heads.
///
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
extern const Family kGptFamily;

/// Its only type, gpt2.cpp.
std::span<const ModelType> gpt_types();
ModelConfig read_gpt2(const JsonReader& file, const ModelType& type, Unsupported& unsupported);
void write_gpt2(const ModelConfig& model, const ModelType& type, JsonObject& out);
std::string gpt2_gguf_name(const ModelConfig& model, const std::string& parameter);
StoredName gpt2_stored_name(const ModelConfig& model, const ModelType* type,
                            const std::string& parameter);

}  // namespace axonn
