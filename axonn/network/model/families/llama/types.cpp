#include "axonn/network/model/families/llama/types.h"

#include <algorithm>
#include <array>
#include <optional>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"

namespace axonn {

namespace {

std::string_view activation_name(const ModelConfig& model) {
  return model.activation == MlpKind::xielu ? "xielu" : "silu";
}

/// Whether a model has none of the options that tell types apart, but perhaps a window.
bool is_plain(const ModelConfig& model) {
  return model.experts == 0 && model.qk_norm == QkNormKind::none && !model.qkv_bias &&
         model.activation == MlpKind::swiglu;
}

/// The object that describes rotary positions. As in transformers 5, rope_scaling, which people add
/// to files of either form, replaces rope_parameters of newer files wholly.
std::optional<JsonReader> rope_object(const JsonReader& file) {
  const auto scaling = file.object("rope_scaling"), parameters = file.object("rope_parameters");
  return scaling && !scaling->empty() ? scaling : parameters ? parameters : scaling;
}

/// Reads the keys of llama3's scaling, of which only the positions have a default.
void read_llama3(const JsonReader& file, const JsonReader& rope, ModelConfig& model) {
  model.rope_scaling = RopeScalingKind::llama3;
  model.rope.factor = rope.needed_real("factor");
  model.rope.low_freq_factor = rope.needed_real("low_freq_factor");
  model.rope.high_freq_factor = rope.needed_real("high_freq_factor");
  const auto original = [](const JsonReader& from) {
    return from.integer({"original_max_position_embeddings"}, kMostRows);
  };
  const auto inner = original(rope);
  model.rope.original_positions = original(file).value_or(inner.value_or(model.positions));
}

/// Reads rope_scaling, or in newer files rope_parameters, which also has rope_theta. The type's
/// scaling holds only if the file says nothing.
void read_rope(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const auto read_common = [&](const JsonReader& from) {
    model.rope_theta = from.real({"rope_theta"}, model.rope_theta);
    if (from.real({"partial_rotary_factor"}, 1) != 1)
      unsupported.push_back("partial_rotary_factor other than 1");
  };
  const auto rope = rope_object(file);
  // A type that scales by default has its own base, too, unless the file describes both.
  if (rope || model.rope_scaling == RopeScalingKind::none) read_common(file);
  if (!rope) return;
  model.rope_scaling = RopeScalingKind::none;
  if (rope->has_objects())
    return unsupported.push_back("rope_parameters of several kinds of layers");
  read_common(*rope);
  const std::string kind = rope->text({"rope_type", "type"}, "default");
  if (kind == "llama3") return read_llama3(file, *rope, model);
  if (kind != "default") unsupported.push_back("rope scaling '" + kind + "'");
}

/// The names of an expert's matrix, and its position in the tensors of files that join all experts
/// of a layer: gate_up_proj (E, 2F, C), with the gate first, and down_proj (E, C, F).
StoredName stored_expert(const ModelConfig& model, const std::string& parameter,
                         const ExpertName& of) {
  const bool down = of.matrix == ".down_proj";
  const std::int64_t parts = down ? 1 : 2;
  return {.names = {parameter},
          .joined = {.names = {of.module + ".experts" + (down ? ".down_proj" : ".gate_up_proj")},
                     .outer = model.experts,
                     .parts = parts,
                     .part = of.expert * parts + (of.matrix == ".up_proj" ? 1 : 0)}};
}

/// Adds the names that a model has if it was saved without its head.
void add_headless(std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "model.";
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i)
    if (names[i].starts_with(kPrefix)) names.push_back(names[i].substr(kPrefix.size()));
}

}  // namespace

ModelConfig llama_defaults() {
  return {.family = ModelFamily::llama, .tied = false, .norm_eps = 1e-6};
}

ModelConfig known_llama(std::int64_t vocab, std::int64_t positions, double rope_theta) {
  return {.family = ModelFamily::llama,
          .vocab = vocab,
          .positions = positions,
          .tied = false,
          .rope_theta = rope_theta};
}

ModelConfig with_experts(ModelConfig model, std::int64_t experts, std::int64_t per_token,
                         std::int64_t ffn) {
  model.experts = experts;
  model.experts_per_token = per_token;
  model.expert_ffn = ffn;
  return model;
}

std::int64_t sliding_window(const JsonReader& file, std::int64_t otherwise) {
  return file.integer_or("sliding_window", kMostRows, {.missing = otherwise, .null = 0});
}

std::optional<bool> layers_slide(const JsonReader& file, Unsupported& unsupported) {
  const nlohmann::json* const kinds = file.find({"layer_types"});
  if (!kinds || !kinds->is_array()) return std::nullopt;
  const auto sliding = std::ranges::count(*kinds, nlohmann::json("sliding_attention"));
  const auto full = std::ranges::count(*kinds, nlohmann::json("full_attention"));
  if (static_cast<std::size_t>(sliding + full) != kinds->size())
    unsupported.push_back("layer_types other than full_attention and sliding_attention");
  else if (sliding > 0 && full > 0)
    unsupported.push_back("layer_types that differ");
  return sliding > 0;
}

void need_no_biases(const JsonReader& file, std::initializer_list<const char*> keys,
                    Unsupported& unsupported) {
  for (const char* key : keys)
    if (file.flag(key, false)) unsupported.emplace_back(key);
}

void write_window(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? nlohmann::json(model.window) : nlohmann::json();
}

void read_experts(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.experts =
      file.integer({"num_experts", "num_local_experts"}, kMostExperts).value_or(model.experts);
  model.experts_per_token =
      file.integer({"num_experts_per_tok"}, kMostExperts).value_or(model.experts_per_token);
  model.expert_ffn = model.ffn;
  if (const nlohmann::json* noise = file.find({"router_jitter_noise"}); noise && *noise != 0)
    unsupported.push_back("router_jitter_noise " + noise->dump());
  if (file.find({"clip_qkv"})) unsupported.push_back("clip_qkv");
}

void write_experts(const ModelConfig& model, double balance, JsonObject& out) {
  out["num_experts_per_tok"] = model.experts_per_token;
  out["router_aux_loss_coef"] = balance;
  out["output_router_logits"] = false;
}

void check_router(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::softmax) unsupported.emplace_back("router = sigmoid");
  if (model.router_scale != 1) unsupported.push_back(concat("router_scale = ", model.router_scale));
  if (model.router_bias) unsupported.emplace_back("router_bias = true");
}

void check_all_routed(const ModelConfig& model, Unsupported& unsupported) {
  if (model.expert_step != 1) unsupported.push_back(concat("expert_step = ", model.expert_step));
  if (!model.dense_layers.empty()) unsupported.emplace_back("dense_layers");
}

void check_head_dim(const ModelConfig& model, Unsupported& unsupported) {
  if (model.heads * model.head_width() != model.hidden)
    unsupported.push_back(concat("head_dim = ", model.head_dim));
}

std::optional<ExpertName> expert_name(const std::string& parameter) {
  constexpr std::string_view kExperts = ".experts.", kWeight = ".weight";
  const std::size_t at = parameter.find(kExperts);
  if (at == parameter.npos || !parameter.ends_with(kWeight)) return std::nullopt;
  const std::size_t number = at + kExperts.size(), dot = parameter.find('.', number);
  return ExpertName{parameter.substr(0, at),
                    parameter.substr(dot, parameter.size() - kWeight.size() - dot),
                    std::stoll(parameter.substr(number, dot - number))};
}

bool is_llama_type(const ModelConfig& model, const ModelType& type) {
  const ModelConfig& defaults = type.defaults;
  return (defaults.experts > 0) == (model.experts > 0) && defaults.qk_norm == model.qk_norm &&
         defaults.qkv_bias == model.qkv_bias && defaults.activation == model.activation &&
         (!is_plain(model) || (defaults.window > 0) == (model.window > 0));
}

std::string llama_type_options(const ModelConfig& model) {
  std::vector<std::string> options;
  if (model.activation == MlpKind::xielu) options.emplace_back("activation = xielu");
  if (model.qkv_bias) options.emplace_back("qkv_bias = true");
  if (model.qk_norm != QkNormKind::none)
    options.push_back(concat("qk_norm = ", kQkNormKinds[static_cast<int>(model.qk_norm)]));
  if (model.experts > 0) options.push_back(concat("experts = ", model.experts));
  if (is_plain(model) && model.window > 0) options.push_back(concat("window = ", model.window));
  return join(options);
}

ModelConfig read_llama(const JsonReader& file, const ModelType& type, Unsupported& unsupported) {
  ModelConfig model = type.defaults;
  model.layers = file.needed({"num_hidden_layers"}, kMostLayers);
  model.hidden = file.needed({"hidden_size"}, kMostColumns);
  model.heads = file.needed({"num_attention_heads"}, kMostColumns);
  // A type's default stands for a missing key, the first model's equal heads for a null.
  model.kv_heads = file.integer_or(
      "num_key_value_heads", kMostColumns,
      {.missing = model.kv_heads > 0 ? model.kv_heads : model.heads, .null = model.heads});
  model.head_dim =
      file.integer_or("head_dim", kMostColumns, {.missing = model.head_dim, .null = 0});
  model.ffn = file.needed({"intermediate_size"}, kMostColumns);
  model.vocab = file.needed({"vocab_size"}, kMostRows);
  model.positions = file.needed({"max_position_embeddings"}, kMostRows);
  model.tied = file.flag("tie_word_embeddings", model.tied);
  model.norm_eps = file.real({"rms_norm_eps"}, model.norm_eps);
  model.init_std = file.real({"initializer_range"}, 0.02);
  model.window = 0;  // of types that have one, its key is read by their own functions
  read_rope(file, model, unsupported);
  const std::string activation = file.text({"hidden_act"}, activation_name(model));
  if (activation != activation_name(model))
    unsupported.push_back("hidden_act '" + activation + "'");
  return model;
}

void write_llama(const ModelConfig& model, JsonObject& out) {
  out.update({{"attention_dropout", 0.0},
              {"head_dim", model.head_width()},
              {"hidden_act", activation_name(model)},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.ffn},
              {"max_position_embeddings", model.positions},
              {"num_attention_heads", model.heads},
              {"num_hidden_layers", model.layers},
              {"num_key_value_heads", model.kv_heads},
              {"rms_norm_eps", model.norm_eps},
              {"rope_theta", model.rope_theta},
              {"rope_scaling", nullptr}});
  if (model.rope_scaling == RopeScalingKind::llama3)
    out["rope_scaling"] = {{"factor", model.rope.factor},
                           {"high_freq_factor", model.rope.high_freq_factor},
                           {"low_freq_factor", model.rope.low_freq_factor},
                           {"original_max_position_embeddings", model.rope.original_positions},
                           {"rope_type", "llama3"}};
}

StoredName llama_stored_name(const ModelConfig& model, const ModelType* type,
                             const std::string& parameter) {
  StoredName stored{.names = {parameter}};
  if (const auto expert = expert_name(parameter)) stored = stored_expert(model, parameter, *expert);
  if (type && type->rename) type->rename(model, parameter, stored);
  add_headless(stored.names);
  add_headless(stored.joined.names);
  return stored;
}

std::string llama_gguf_name(const std::string& parameter) {
  using Names = std::array<std::string_view, 2>;
  constexpr std::array<Names, 3> kEnds = {{{"model.embed_tokens.weight", "token_embd.weight"},
                                           {"model.norm.weight", "output_norm.weight"},
                                           {"lm_head.weight", "output.weight"}}};
  constexpr std::array<Names, 14> kInBlock = {{
      {"input_layernorm.weight", "attn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"},
  }};
  for (const auto& [here, there] : kEnds)
    if (parameter == here) return std::string(there);
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t dot = parameter.find('.', kLayers.size());
  if (!parameter.starts_with(kLayers) || dot == parameter.npos) return {};
  for (const auto& [here, there] : kInBlock)
    if (std::string_view(parameter).substr(dot + 1) == here)
      return concat("blk.", parameter.substr(kLayers.size(), dot - kLayers.size()), '.', there);
  return {};
}

}  // namespace axonn
