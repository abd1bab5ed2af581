#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "axonn/network/model/families/family.h"
#include "axonn/network/model/json_reader.h"

namespace axonn {

// The types of the family llama, a file each; a new one is added here.

std::vector<ModelType> llama_types();    // meta.cpp
std::vector<ModelType> mistral_types();  // mistral.cpp
std::vector<ModelType> mixtral_types();  // mixtral.cpp
std::vector<ModelType> olmoe_types();    // olmoe.cpp
std::vector<ModelType> qwen_types();     // qwen.cpp
std::vector<ModelType> apertus_types();  // apertus.cpp

inline constexpr std::array kLlamaTypes = {llama_types, mistral_types, mixtral_types,
                                           olmoe_types, qwen_types,    apertus_types};

// Pieces of which types are made; types.cpp.

/// The defaults of all types: untied, no biases. transformers' eps of norms is 1e-6 where a type
/// has no other.
ModelConfig llama_defaults();
/// A published model with these sizes, to which options are added: eps 1e-5.
ModelConfig known_llama(std::int64_t vocab, std::int64_t positions, double rope_theta = 10000);
ModelConfig with_experts(ModelConfig model, std::int64_t experts, std::int64_t per_token,
                         std::int64_t ffn);

/// The key sliding_window: `otherwise` if it is missing, 0 if it is null.
std::int64_t sliding_window(const JsonReader& file, std::int64_t otherwise);
/// Whether the layers of a file with layer_types have the window: all or none; adds layer_types
/// that differ. Empty without that key.
std::optional<bool> layers_slide(const JsonReader& file, Unsupported& unsupported);
/// Adds those of the keys that are true. Types that do not call it have no such biases, whatever
/// their files say. attention_bias adds a bias to the output projection, too.
void need_no_biases(const JsonReader& file, std::initializer_list<const char*> keys,
                    Unsupported& unsupported);
void write_window(const ModelConfig& model, JsonObject& out);

/// The keys of experts that have the same names in all types. Experts are as wide as an MLP, in all
/// layers.
void read_experts(const JsonReader& file, ModelConfig& model, Unsupported& unsupported);
void write_experts(const ModelConfig& model, double balance, JsonObject& out);
/// Adds options of routers that no type has.
void check_router(const ModelConfig& model, Unsupported& unsupported);
/// Adds options by which some layers have no experts.
void check_all_routed(const ModelConfig& model, Unsupported& unsupported);
/// Adds head_dim if heads are not as wide together as the model.
void check_head_dim(const ModelConfig& model, Unsupported& unsupported);

/// The name of an expert's matrix, cut up: "model.layers.0.mlp" ".experts." "7" ".gate_proj".
struct ExpertName {
  std::string module, matrix;
  std::int64_t expert = 0;
};
/// Empty for a parameter that is no expert's.
std::optional<ExpertName> expert_name(const std::string& parameter);

// The family's functions; see Family.

bool is_llama_type(const ModelConfig& model, const ModelType& type);
std::string llama_type_options(const ModelConfig& model);
ModelConfig read_llama(const JsonReader& file, const ModelType& type, Unsupported& unsupported);
void write_llama(const ModelConfig& model, JsonObject& out);
StoredName llama_stored_name(const ModelConfig& model, const ModelType* type,
                             const std::string& parameter);
std::string llama_gguf_name(const std::string& parameter);

}  // namespace axonn
