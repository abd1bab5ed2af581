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

std::vector<ModelType> llama_types();       // meta.cpp
std::vector<ModelType> mistral_types();     // mistral.cpp: Ministral, too
std::vector<ModelType> mixtral_types();     // mixtral.cpp
std::vector<ModelType> olmoe_types();       // olmoe.cpp
std::vector<ModelType> olmo_types();        // olmo.cpp: OLMo 2 and 3
std::vector<ModelType> qwen_types();        // qwen.cpp
std::vector<ModelType> apertus_types();     // apertus.cpp
std::vector<ModelType> smollm_types();      // smollm.cpp
std::vector<ModelType> phi_types();         // phi.cpp
std::vector<ModelType> seed_types();        // seed.cpp
std::vector<ModelType> granite_types();     // granite.cpp
std::vector<ModelType> glm_types();         // glm.cpp
std::vector<ModelType> exaone_types();      // exaone.cpp
std::vector<ModelType> ernie_types();       // ernie.cpp
std::vector<ModelType> hunyuan_types();     // hunyuan.cpp
std::vector<ModelType> gemma_types();       // gemma.cpp
std::vector<ModelType> minimax_types();     // minimax.cpp
std::vector<ModelType> starcoder_types();   // starcoder.cpp
std::vector<ModelType> nemotron_types();    // nemotron.cpp
std::vector<ModelType> cohere_types();      // cohere.cpp
std::vector<ModelType> gpt_oss_types();     // gpt_oss.cpp
std::vector<ModelType> deepseek_types();    // deepseek.cpp: V2 and V3
std::vector<ModelType> gemma4_types();      // gemma4.cpp
std::vector<ModelType> qwen_delta_types();  // qwen_delta.cpp: Qwen3.5
std::vector<ModelType> llama4_types();      // llama4.cpp

inline constexpr std::array kLlamaTypes = {
    llama_types,   mistral_types,  mixtral_types,   olmoe_types,    olmo_types,
    qwen_types,    apertus_types,  smollm_types,    phi_types,      seed_types,
    granite_types, glm_types,      exaone_types,    ernie_types,    hunyuan_types,
    gemma_types,   minimax_types,  starcoder_types, nemotron_types, cohere_types,
    gpt_oss_types, deepseek_types, gemma4_types,    llama4_types,   qwen_delta_types};

// Pieces of which types are made; types.cpp.

/// The defaults of all types: untied, no biases. transformers' eps of norms is 1e-6 where a type
/// has no other.
ModelConfig llama_defaults();
/// A published model with these sizes, to which options are added: eps 1e-5.
ModelConfig known_llama(std::int64_t vocab, std::int64_t positions, double rope_theta = 10000);
ModelConfig with_experts(ModelConfig model, std::int64_t experts, std::int64_t per_token,
                         std::int64_t ffn);

// ModelType::fits: which layers have a window.
bool no_layer_slides(const ModelConfig& model);
bool all_layers_slide(const ModelConfig& model);
bool some_layers_slide(const ModelConfig& model);

/// The key sliding_window: `otherwise` if it is missing, 0 if it is null.
std::int64_t sliding_window(const JsonReader& file, std::int64_t otherwise);
using LayerList = std::vector<std::int64_t>;
/// The layers, counted from 0, for which f(layer) is true.
template <typename F>
LayerList layers_where(const ModelConfig& model, const F& f) {
  LayerList layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (f(layer)) layers.push_back(layer);
  return layers;
}
/// Layers n - 1, 2n - 1 and so on: the last of every n.
LayerList every_nth_layer(const ModelConfig& model, std::int64_t n);
/// Every so many layers have no rotary positions, if a file with no_rope_layers is silent.
inline constexpr std::int64_t kRopeInterval = 4;
/// The layers with a 0 in no_rope_layers, which may have more entries than there are layers.
LayerList layers_without_rope(const JsonReader& file, const ModelConfig& model);
/// Writes no_rope_layers.
void write_rope_layers(const ModelConfig& model, JsonObject& out);
/// The layers that have no window by the key layer_types; empty without that key.
std::optional<LayerList> full_layers(const JsonReader& file, const ModelConfig& model,
                                     Unsupported& unsupported);
/// Sets a window of all layers but some; 0, or no layer that has it: none.
void set_window(ModelConfig& model, std::int64_t window, LayerList full_layers);
/// The same; the layers without the window have no rotary positions, either.
void set_window_and_ropes(ModelConfig& model, std::int64_t window, LayerList full_layers);
/// Adds nope_layers that are not the layers without the window.
void check_full_layers_without_rope(const ModelConfig& model, Unsupported& unsupported);
/// As set_window(); throws UsageError if a layer should have a window and the file has none.
void set_needed_window(const JsonReader& file, ModelConfig& model, std::int64_t window,
                       LayerList full_layers);
/// Writes sliding_window.
void write_window(const ModelConfig& model, JsonObject& out);
/// Writes layer_types.
void write_layer_types(const ModelConfig& model, JsonObject& out);
// The keys of rotary positions; ropes.cpp.

/// Reads rope_scaling, or in newer files rope_parameters, which also has rope_theta. The type's
/// scaling holds only if the file says nothing.
void read_rope(const JsonReader& file, const ModelType& type, ModelConfig& model,
               Unsupported& unsupported);
/// Reads rope_parameters with an object for each kind of layers. rope_scaling, and outside of the
/// objects rope_theta, are those of layers without the window alone. As in transformers, `truncate`
/// in the objects does not count.
void read_ropes(const JsonReader& file, const ModelType& type, ModelConfig& model,
                Unsupported& unsupported);
/// The factor of scores that DeepSeek's YaRN adds to cosines and sines, by mscale_all_dim; 1
/// without that.
double read_score_growth(const JsonReader& file, const ModelConfig& model);
/// The key mscale_all_dim of a factor of scores.
void write_score_growth(double growth, const ModelConfig& model, JsonObject& out);
/// The factor of longrope in files that have none.
double longrope_factor(const ModelConfig& model);
/// The keys of a scaling of rotary frequencies, rope_type among them.
nlohmann::json rope_scaling_keys(const RopeScaling& scaling);

/// Writes rope_parameters with an object for each kind of layers; rope_scaling, which transformers
/// 4 reads, is that of layers without the window.
void write_ropes(const ModelConfig& model, JsonObject& out);
/// Adds a scaling of rotary frequencies.
void need_plain_rope(const ModelConfig& model, Unsupported& unsupported);

// Other pieces; types.cpp.

/// The keys of experts that have the same names in all types. Experts are as wide as an MLP, in all
/// layers.
void read_experts(const JsonReader& file, ModelConfig& model, Unsupported& unsupported);
void write_experts(const ModelConfig& model, double balance, JsonObject& out);
/// Adds options of routers that no type has.
void check_router(const ModelConfig& model, Unsupported& unsupported);
/// Adds what llama.cpp does not have in most types with experts: scores that are not divided by
/// their sum, layers without experts, scaled rotary frequencies.
void check_normalised_experts(const ModelConfig& model, Unsupported& unsupported);
/// Adds options by which some layers have no experts.
void check_all_routed(const ModelConfig& model, Unsupported& unsupported);
/// Adds shared_ffn if it is not the width of several experts.
void need_whole_shared_experts(const ModelConfig& model, Unsupported& unsupported);
/// Adds head_dim if heads are not as wide together as the model.
void check_head_dim(const ModelConfig& model, Unsupported& unsupported);

/// If `here` is a part of the parameter's name, its folders have `there` in place of it.
void rename_part(const std::string& parameter, std::string_view here, std::string_view there,
                 StoredName& stored);
/// Rows of a joined tensor that a matrix is.
struct JoinedPart {
  std::string_view name, joined;  ///< ends of names: "mlp.gate_proj.weight"
  std::int64_t rows, first;       ///< of the tensor; the first of the matrix
};
/// If the parameter is the part, its folders have the tensor.
void join_part(const std::string& parameter, const JoinedPart& part, StoredName& stored);
/// Joins gate_proj and up_proj as gate_up_proj.
void join_gate_and_up(const ModelConfig& model, const std::string& parameter, StoredName& stored);

/// The name of an expert's weight or bias, cut up: "model.layers.0.mlp" ".experts." "7"
/// ".gate_proj" ".weight".
struct ExpertName {
  std::string module, matrix;
  std::int64_t expert = 0;
  bool bias = false;
};
/// Empty for a parameter that is no expert's.
std::optional<ExpertName> expert_name(const std::string& parameter);
/// "model.layers.0.block_sparse_moe" of the MLP "model.layers.0.mlp".
std::string sparse_moe(const std::string& mlp);
/// Adds Mixtral's names of experts' and routers' parameters in front.
void add_mixtral_names(const ModelConfig&, const std::string& parameter, StoredName& stored);
/// Sets the layers with dense MLPs: the first ones.
void set_dense_layers(ModelConfig& model, std::int64_t count);
std::int64_t dense_layer_count(const ModelConfig& model);
/// Adds dense_layers unless these are the first ones.
void check_first_layers_dense(const ModelConfig& model, Unsupported& unsupported);

// The family's functions; see Family.

bool is_llama_type(const ModelConfig& model, const ModelType& type);
std::string llama_type_options(const ModelConfig& model);
ModelConfig read_llama(const JsonReader& file, const ModelType& type, Unsupported& unsupported);
void write_llama(const ModelConfig& model, const ModelType& type, JsonObject& out);
void check_llama(const ModelConfig& model, const ModelType& type, Unsupported& unsupported);
StoredName llama_stored_name(const ModelConfig& model, const ModelType* type,
                             const std::string& parameter);
std::string llama_gguf_name(const ModelConfig& model, const std::string& parameter);

}  // namespace axonn
