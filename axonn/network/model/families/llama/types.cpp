#include "axonn/network/model/families/llama/types.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/llama/llama.h"

namespace axonn {

namespace {

std::string_view activation_name(const ModelConfig& model) {
  switch (model.activation) {
    case MlpKind::xielu:
      return "xielu";
    case MlpKind::geglu:
    case MlpKind::gelu:
      return "gelu_pytorch_tanh";
    case MlpKind::relu2:
      return "relu2";
    case MlpKind::swiglu:
    case MlpKind::clamped_swiglu:
      break;
  }
  return "silu";
}

/// The name of layers with the window.
const char* window_kind(const ModelConfig& model) {
  return model.window_chunks ? "chunked_attention" : "sliding_attention";
}

/// Gemma's is another: its hidden_act was once wrong.
const char* activation_key(const ModelConfig& model) {
  return model.activation == MlpKind::geglu ? "hidden_activation" : "hidden_act";
}

/// Whether types are told apart by their windows: whether other options of theirs are the same.
bool windows_tell(const ModelConfig& model) {
  const bool plain = model.experts == 0 && model.qk_norm == QkNormKind::none &&
                     (!model.qkv_bias || model.out_bias) && model.activation == MlpKind::swiglu &&
                     model.nope_layers.empty();
  return plain || model.block_norm == BlockNormKind::output;
}

/// The names of an expert's matrix, and its position in the tensors of files that join all experts
/// of a layer: gate_up_proj (E, 2F, C), with the gate first, and down_proj (E, C, F).
StoredName stored_expert(const ModelConfig& model, const std::string& parameter,
                         const ExpertName& of) {
  if (of.bias) return {.names = {parameter}};
  const bool down = of.matrix == ".down_proj";
  const std::int64_t width = model.expert_ffn > 0 ? model.expert_ffn : model.ffn,
                     rows = down ? model.hidden : 2 * width;
  return {.names = {parameter},
          .joined = {.names = {of.module + ".experts" + (down ? ".down_proj" : ".gate_up_proj")},
                     .outer = model.experts,
                     .rows = rows,
                     .first = of.expert * rows + (of.matrix == ".up_proj" ? width : 0)}};
}

/// The names of the layer that predicts further tokens, of types that call it mtp.
void rename_further(const ModelConfig& model, StoredName& stored) {
  constexpr std::array<std::array<std::string_view, 2>, 4> kOwn = {
      {{"enorm.weight", "pre_fc_norm_embedding.weight"},
       {"hnorm.weight", "pre_fc_norm_hidden.weight"},
       {"eh_proj.weight", "fc.weight"},
       {"shared_head.norm.weight", "norm.weight"}}};
  const std::string layer = concat("model.layers.", model.layers, '.');
  for (auto* const names : {&stored.names, &stored.joined.names})
    for (std::string& name : *names) {
      if (!name.starts_with(layer)) continue;
      const std::string rest = name.substr(layer.size());
      const auto* const own = std::ranges::find(kOwn, rest, [](const auto& of) { return of[0]; });
      name = own == kOwn.end() ? concat("mtp.layers.0.", rest) : concat("mtp.", (*own)[1]);
    }
}

/// Adds the names that a model has if it was saved without its head, or inside a model that also
/// sees images.
void add_other_prefixes(std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "model.", kText = "language_model.";
  const std::vector<std::string> usual = names;
  for (const std::string& name : usual) {
    names.push_back(concat(kText, name));
    if (!name.starts_with(kPrefix)) continue;
    const std::string headless = name.substr(kPrefix.size());
    names.push_back(headless);
    names.push_back(concat(kPrefix, kText, headless));
  }
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

LayerList every_nth_layer(const ModelConfig& model, std::int64_t n) {
  return layers_where(model, [n](std::int64_t layer) { return (layer + 1) % n == 0; });
}

LayerList layers_without_rope(const JsonReader& file, const ModelConfig& model) {
  const std::int64_t interval =
      file.integer({"no_rope_layer_interval"}, kMostLayers).value_or(kRopeInterval);
  const nlohmann::json* const key = file.find({"no_rope_layers"});
  if (!key || key->empty()) return every_nth_layer(model, interval);
  const LayerList has_rope = file.integers("no_rope_layers");
  if (std::ssize(has_rope) < model.layers)
    refuse(file.location(), ": no_rope_layers wants one number, 0 or 1, for each of the ",
           model.layers, " layers, got ", has_rope.size());
  return layers_where(model, [&](std::int64_t layer) { return has_rope[layer] == 0; });
}

void write_rope_layers(const ModelConfig& model, JsonObject& out) {
  out["no_rope_layer_interval"] = kRopeInterval;
  nlohmann::json has_rope = nlohmann::json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    has_rope.push_back(model.has_rope(layer) ? 1 : 0);
  out["no_rope_layers"] = std::move(has_rope);
}

std::optional<LayerList> full_layers(const JsonReader& file, const ModelConfig& model,
                                     Unsupported& unsupported) {
  const nlohmann::json* const kinds = file.find({"layer_types"});
  if (!kinds) return std::nullopt;
  if (!kinds->is_array() || std::ssize(*kinds) != model.layers)
    refuse(file.location(), ": layer_types wants a list of num_hidden_layers = ", model.layers,
           " kinds of layers, got ", kinds->dump());
  const char* const windowed = window_kind(model);
  for (const nlohmann::json& kind : *kinds)
    if (kind != windowed && kind != "full_attention")
      unsupported.push_back("layer_types with " + kind.dump());
  return layers_where(model, [&](std::int64_t i) { return (*kinds)[i] == "full_attention"; });
}

void set_window(ModelConfig& model, std::int64_t window, LayerList full_layers) {
  const bool any = window > 0 && std::ssize(full_layers) < model.layers;
  model.window = any ? window : 0;
  model.full_layers = any ? std::move(full_layers) : LayerList();
}

void set_window_and_ropes(ModelConfig& model, std::int64_t window, LayerList full_layers) {
  model.nope_layers = full_layers;
  set_window(model, window, std::move(full_layers));
}

void check_full_layers_without_rope(const ModelConfig& model, Unsupported& unsupported) {
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (model.has_rope(layer) == (model.window_of(layer) == 0))
      return unsupported.push_back("nope_layers other than the layers without the window");
}

void set_needed_window(const JsonReader& file, ModelConfig& model, std::int64_t window,
                       LayerList full_layers) {
  if (window == 0 && std::ssize(full_layers) < model.layers)
    refuse(file.location(), ": there are layers of sliding_attention, but no sliding_window");
  set_window(model, window, std::move(full_layers));
}

bool no_layer_slides(const ModelConfig& model) { return model.window == 0; }
bool all_layers_slide(const ModelConfig& model) {
  return model.window > 0 && model.full_layers.empty();
}
bool some_layers_slide(const ModelConfig& model) {
  return model.window > 0 && !model.full_layers.empty();
}

void write_window(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? nlohmann::json(model.window) : nlohmann::json();
}

void write_layer_types(const ModelConfig& model, JsonObject& out) {
  nlohmann::json kinds = nlohmann::json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    kinds.push_back(model.window_of(layer) > 0 ? window_kind(model) : "full_attention");
  out["layer_types"] = std::move(kinds);
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

void check_normalised_experts(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
}

void check_all_routed(const ModelConfig& model, Unsupported& unsupported) {
  if (model.expert_step != 1) unsupported.push_back(concat("expert_step = ", model.expert_step));
  if (!model.dense_layers.empty()) unsupported.emplace_back("dense_layers");
}

void set_dense_layers(ModelConfig& model, std::int64_t count) {
  model.expert_step = 1;
  model.dense_layers = layers_where(model, [&](std::int64_t layer) { return layer < count; });
}

std::int64_t dense_layer_count(const ModelConfig& model) {
  return std::ssize(
      layers_where(model, [&](std::int64_t layer) { return !model.has_experts(layer); }));
}

void check_first_layers_dense(const ModelConfig& model, Unsupported& unsupported) {
  const std::int64_t dense = dense_layer_count(model);
  for (std::int64_t layer = 0; layer < dense; ++layer)
    if (model.has_experts(layer))
      return unsupported.push_back("dense_layers or expert_step other than the first layers");
}

void need_whole_shared_experts(const ModelConfig& model, Unsupported& unsupported) {
  if (model.experts > 0 && model.shared_ffn % model.expert_ffn != 0)
    unsupported.push_back(concat("shared_ffn = ", model.shared_ffn,
                                 ", which is no multiple of expert_ffn = ", model.expert_ffn));
}

void check_head_dim(const ModelConfig& model, Unsupported& unsupported) {
  if (model.heads * model.head_width() != model.hidden)
    unsupported.push_back(concat("head_dim = ", model.head_dim));
}

void rename_part(const std::string& parameter, std::string_view here, std::string_view there,
                 StoredName& stored) {
  if (const std::size_t at = parameter.find(here); at != parameter.npos)
    stored.names = {concat(parameter.substr(0, at), there, parameter.substr(at + here.size()))};
}

void join_part(const std::string& parameter, const JoinedPart& part, StoredName& stored) {
  if (!parameter.ends_with(part.name)) return;
  const std::string module = parameter.substr(0, parameter.size() - part.name.size());
  stored.joined = {.names = {concat(module, part.joined)},
                   .rows = part.rows,
                   .first = part.first,
                   .usual = true};
}

void join_gate_and_up(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  const std::int64_t width = resolved(model, 0, 0).ffn;
  constexpr std::string_view kJoined = "mlp.gate_up_proj.weight";
  join_part(parameter, {"mlp.gate_proj.weight", kJoined, 2 * width, 0}, stored);
  join_part(parameter, {"mlp.up_proj.weight", kJoined, 2 * width, width}, stored);
}

std::optional<ExpertName> expert_name(const std::string& parameter) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = parameter.find(kExperts);
  if (at == parameter.npos) return std::nullopt;
  const std::size_t number = at + kExperts.size(), dot = parameter.find('.', number),
                    kind = parameter.rfind('.');
  return ExpertName{parameter.substr(0, at), parameter.substr(dot, kind - dot),
                    std::stoll(parameter.substr(number, dot - number)),
                    parameter.substr(kind) == ".bias"};
}

namespace {

/// Whether files of the type can say which products have biases.
bool has_biases(const ModelType& type, const ModelConfig& model) {
  const auto& keys = type.bias_keys;
  if (keys.all) return model.out_bias == model.qkv_bias && model.mlp_bias == model.qkv_bias;
  if (model.mlp_bias && !keys.mlp) return false;
  if (keys.attention) return model.out_bias == model.qkv_bias;
  return (keys.qkv || model.qkv_bias == type.defaults.qkv_bias) && (keys.out || !model.out_bias);
}

/// Whether files of the type can say the model's factors.
bool has_scales(const ModelType& type, const ModelConfig& model) {
  const auto& keys = type.scale_keys;
  const ModelConfig& usual = type.defaults;
  return (keys.embedding || model.embedding_scale == usual.embedding_scale) &&
         (keys.attention || model.attention_scale == usual.attention_scale) &&
         (keys.residual || model.residual_scale == usual.residual_scale) &&
         (keys.logit || model.logit_scale == usual.logit_scale);
}

/// Whether they can say its rotary positions.
bool has_rope(const ModelType& type, const ModelConfig& model) {
  return (model.rope_pairs == type.defaults.rope_pairs || type.rope_keys.pairs) &&
         (model.partial_rotary_factor == 1 || type.rope_keys.part) &&
         (model.query_growth == 0 || type.rope_keys.growth);
}

void read_biases(const JsonReader& file, const ModelType& type, ModelConfig& model) {
  const auto& keys = type.bias_keys;
  if (keys.attention || keys.qkv) model.qkv_bias = file.flag("attention_bias", model.qkv_bias);
  if (keys.all) model.qkv_bias = model.mlp_bias = file.flag("use_bias", model.qkv_bias);
  if (keys.attention || keys.all) model.out_bias = model.qkv_bias;
  if (keys.out) model.out_bias = file.flag("attention_out_bias", false);
  if (keys.mlp) model.mlp_bias = file.flag("mlp_bias", false);
}

void write_biases(const ModelConfig& model, const ModelType& type, JsonObject& out) {
  const auto& keys = type.bias_keys;
  if (keys.attention || keys.qkv) out["attention_bias"] = model.qkv_bias;
  if (keys.all) out["use_bias"] = model.qkv_bias;
  if (keys.out) out["attention_out_bias"] = model.out_bias;
  if (keys.mlp) out["mlp_bias"] = model.mlp_bias;
}

}  // namespace

bool is_llama_type(const ModelConfig& model, const ModelType& type) {
  const ModelConfig& defaults = type.defaults;
  if (!model.type.empty() && model.type != type.name) return false;
  if (type.is_named && model.type.empty()) return false;
  const bool same_parts =
      defaults.qk_norm == model.qk_norm && (defaults.shared_ffn > 0) == (model.shared_ffn > 0);
  return (type.dense_or_experts || (defaults.experts > 0) == (model.experts > 0)) &&
         (same_parts || type.is_named) &&
         (model.expert_groups == 1 ||
          (type.groups_experts && defaults.expert_group_best == model.expert_group_best)) &&
         (defaults.kv_lora_rank > 0) == (model.kv_lora_rank > 0) && has_rope(type, model) &&
         has_scales(type, model) && has_biases(type, model) &&
         (type.dense_or_experts || !model.expert_block_norms) &&
         defaults.attention_gate == model.attention_gate &&
         (defaults.attention_gate || model.delta_layers.empty()) &&
         (defaults.value_norm || (model.layer_input == 0 && model.shared_kv_layers == 0)) &&
         defaults.value_norm == model.value_norm && defaults.layer_factor == model.layer_factor &&
         (defaults.value_norm ||
          (model.full_head_dim == 0 && model.full_kv_heads == 0 && !model.full_values_are_keys)) &&
         (type.scale_keys.caps || (model.score_cap == 0 && model.logit_cap == 0)) &&
         defaults.activation == model.activation && defaults.sinks == model.sinks &&
         defaults.expert_bias == model.expert_bias &&
         (model.experts == 0 || defaults.shared_gate == model.shared_gate) &&
         defaults.expert_input_scores == model.expert_input_scores &&
         (defaults.qk_norm == model.qk_norm || model.qk_norm != QkNormKind::rotated_plain) &&
         (defaults.window_chunks || !model.window_chunks) &&
         (defaults.nope_query_growth > 0 || model.nope_query_growth == 0) &&
         defaults.router_logit_bias == model.router_logit_bias &&
         defaults.block_norm == model.block_norm && defaults.norm == model.norm &&
         defaults.norm_plus_one == model.norm_plus_one &&
         (type.by_layer.nopes || defaults.nope_layers.empty() == model.nope_layers.empty()) &&
         (!type.fits || type.fits(model));
}

std::string llama_type_options(const ModelConfig& model) {
  std::vector<std::string> options;
  if (!model.type.empty()) options.push_back("type = " + model.type);
  const auto say_if = [&](bool differs, const auto&... words) {
    if (differs) options.push_back(concat(words...));
  };
  say_if(model.activation != MlpKind::swiglu,
         "activation = ", kMlpKinds[static_cast<int>(model.activation)]);
  if (model.qkv_bias) options.emplace_back("qkv_bias = true");
  if (model.out_bias) options.emplace_back("out_bias = true");
  if (model.mlp_bias) options.emplace_back("mlp_bias = true");
  say_if(model.partial_rotary_factor != 1, "partial_rotary_factor = ", model.partial_rotary_factor);
  say_if(model.rope_pairs != RopePairs::halves, "rope_pairs = neighbours");
  say_if(model.query_growth > 0, "query_growth = ", model.query_growth);
  say_if(model.norm != NormKind::rms, "norm = ", kNormKinds[static_cast<int>(model.norm)]);
  say_if(model.norm_plus_one, "norm_plus_one = true");
  say_if(model.embedding_scale != 1, "embedding_scale = ", model.embedding_scale);
  say_if(model.attention_scale != 0, "attention_scale = ", model.attention_scale);
  say_if(model.residual_scale != 1, "residual_scale = ", model.residual_scale);
  say_if(model.logit_scale != 1, "logit_scale = ", model.logit_scale);
  say_if(model.score_cap > 0, "score_cap = ", model.score_cap);
  say_if(model.logit_cap > 0, "logit_cap = ", model.logit_cap);
  say_if(model.nope_query_growth > 0, "nope_query_growth = ", model.nope_query_growth);
  say_if(model.window_chunks, "window_chunks = true");
  say_if(model.expert_input_scores, "expert_input_scores = true");
  if (model.qk_norm != QkNormKind::none)
    options.push_back(concat("qk_norm = ", kQkNormKinds[static_cast<int>(model.qk_norm)]));
  say_if(model.block_norm != BlockNormKind::input,
         "block_norm = ", kBlockNormKinds[static_cast<int>(model.block_norm)]);
  say_if(model.experts > 0, "experts = ", model.experts);
  say_if(model.sinks, "sinks = true");
  say_if(model.expert_block_norms, "expert_block_norms = true");
  say_if(model.value_norm, "value_norm = true");
  say_if(model.layer_factor, "layer_factor = true");
  say_if(model.layer_input > 0, "layer_input = ", model.layer_input);
  say_if(model.shared_kv_layers > 0, "shared_kv_layers = ", model.shared_kv_layers);
  say_if(model.full_head_dim > 0, "full_head_dim = ", model.full_head_dim);
  say_if(model.full_kv_heads > 0, "full_kv_heads = ", model.full_kv_heads);
  say_if(model.full_values_are_keys, "full_values_are_keys = true");
  say_if(model.kv_lora_rank > 0, "kv_lora_rank = ", model.kv_lora_rank);
  say_if(model.attention_gate, "attention_gate = true");
  say_if(!model.delta_layers.empty(), "delta_layers");
  say_if(model.expert_bias, "expert_bias = true");
  say_if(model.router_logit_bias, "router_logit_bias = true");
  say_if(model.expert_groups != 1, "expert_groups = ", model.expert_groups);
  say_if(model.shared_ffn > 0, "shared_ffn = ", model.shared_ffn);
  say_if(model.shared_gate, "shared_gate = true");
  if (!model.nope_layers.empty()) options.emplace_back("nope_layers");
  if (windows_tell(model) && model.window > 0) options.push_back(concat("window = ", model.window));
  if (windows_tell(model) && some_layers_slide(model)) options.emplace_back("full_layers");
  return join(options);
}

namespace {}  // namespace

ModelConfig read_llama(const JsonReader& file, const ModelType& type, Unsupported& unsupported) {
  ModelConfig model = type.defaults;
  const auto size = [&](const char* key, std::int64_t most, std::int64_t otherwise) {
    return otherwise > 0 ? file.integer({key}, most).value_or(otherwise) : file.needed({key}, most);
  };
  model.layers = size("num_hidden_layers", kMostLayers, model.layers);
  model.hidden = size("hidden_size", kMostColumns, model.hidden);
  model.heads = size("num_attention_heads", kMostColumns, model.heads);
  // A type's default stands for a missing key, the first model's equal heads for a null.
  model.kv_heads = file.integer_or(
      "num_key_value_heads", kMostColumns,
      {.missing = model.kv_heads > 0 ? model.kv_heads : model.heads, .null = model.heads});
  model.head_dim =
      file.integer_or("head_dim", kMostColumns, {.missing = model.head_dim, .null = 0});
  model.ffn = size("intermediate_size", kMostColumns, model.ffn);
  model.vocab = size("vocab_size", kMostRows, model.vocab);
  model.positions = size("max_position_embeddings", kMostRows, model.positions);
  model.tied = file.flag("tie_word_embeddings", model.tied);
  model.norm_eps = file.real({type.norm_key}, model.norm_eps);
  model.init_std = file.real({"initializer_range"}, 0.02);
  read_biases(file, type, model);
  // Of types that have these, keys are read by their own functions.
  set_window(model, 0, {});
  model.nope_layers = {};
  if (type.by_layer.ropes)
    read_ropes(file, type, model, unsupported);
  else
    read_rope(file, type, model, unsupported);
  const std::string activation = file.text({activation_key(model)}, activation_name(model));
  if (activation != activation_name(model))
    unsupported.push_back("hidden_act '" + activation + "'");
  if (type.further.key)
    model.mtp_layers =
        file.zero_or(type.further.key, type.further.named ? 1 : kMostLayers, type.further.silent);
  return model;
}

void write_llama(const ModelConfig& model, const ModelType& type, JsonObject& out) {
  if (type.further.key) out[type.further.key] = model.mtp_layers;
  out.update({{"attention_dropout", 0.0},
              {"head_dim", model.head_width()},
              {activation_key(model), activation_name(model)},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.ffn},
              {"max_position_embeddings", model.positions},
              {"num_attention_heads", model.heads},
              {"num_hidden_layers", model.layers},
              {"num_key_value_heads", model.kv_heads},
              {type.norm_key, model.norm_eps},
              {"rope_theta", model.rope_theta},
              {"rope_scaling", nullptr}});
  // Where a type scales by itself, it would in the place of a scaling that is missing or empty.
  const bool by_itself = type.defaults.rope.kind != RopeScalingKind::none;
  if (model.rope.kind != RopeScalingKind::none || by_itself)
    out["rope_scaling"] = rope_scaling_keys(model.rope);
  if (type.rope_keys.part) out["partial_rotary_factor"] = model.partial_rotary_factor;
  write_biases(model, type, out);
}

void check_llama(const ModelConfig& model, const ModelType& type, Unsupported& unsupported) {
  if (model.mtp_layers > (type.further.named ? 1 : type.further.key ? kMostLayers : 0))
    unsupported.push_back(concat("mtp_layers = ", model.mtp_layers));
  if (some_layers_slide(model) && !type.by_layer.windows) unsupported.emplace_back("full_layers");
  if (model.has_window_rope() && !type.by_layer.ropes)
    unsupported.emplace_back("other rotary frequencies in layers with the window");
  if (model.rope.kind == RopeScalingKind::yarn && !model.rope.truncate && type.by_layer.ropes)
    unsupported.emplace_back("rope_truncate = false");
  if (model.rope.kind == RopeScalingKind::longrope && type.by_layer.ropes)
    unsupported.emplace_back("rope_scaling = longrope");
}

StoredName llama_stored_name(const ModelConfig& model, const ModelType* type,
                             const std::string& parameter) {
  StoredName stored{.names = {parameter}};
  if (const auto expert = expert_name(parameter)) stored = stored_expert(model, parameter, *expert);
  if (type && type->rename) type->rename(model, parameter, stored);
  if (type && type->further.named) rename_further(model, stored);
  add_other_prefixes(stored.names);
  add_other_prefixes(stored.joined.names);
  return stored;
}

namespace {

/// llama.cpp's names of the modules of a block.
constexpr std::array<std::array<std::string_view, 2>, 26> kGgufInBlock = {{
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"linear_attn.q_proj", "attn_qkv"},
    {"linear_attn.k_proj", "attn_qkv"},
    {"linear_attn.v_proj", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
}};

}  // namespace

std::string llama_gguf_name(const ModelConfig& model, const std::string& parameter) {
  using Names = std::array<std::string_view, 2>;
  constexpr std::array<Names, 4> kEnds = {{{"model.embed_tokens.weight", "token_embd.weight"},
                                           {"model.norm.weight", "output_norm.weight"},
                                           {"model.norm.bias", "output_norm.bias"},
                                           {"lm_head.weight", "output.weight"}}};
  const ModelType* const type = find_type(kLlamaFamily, model);
  const std::array<Names, 2> usual_norms = {
      {{"input_layernorm", "attn_norm"},
       {"post_attention_layernorm", type ? type->gguf.mlp_norm : "ffn_norm"}}};
  constexpr std::array<Names, 4> kOutputNorms = {
      {{"input_layernorm", "attn_norm"},
       {"pre_feedforward_layernorm", "ffn_norm"},
       {"post_attention_layernorm", "post_attention_norm"},
       {"post_feedforward_layernorm", "post_ffw_norm"}}};
  for (const auto& [here, there] : kEnds)
    if (parameter == here) return std::string(there);
  if (type)
    for (const auto& [here, there] : type->gguf.names)
      if (parameter == concat("model.", here)) return std::string(there);
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t dot = parameter.find('.', kLayers.size()), kind = parameter.rfind('.');
  if (!parameter.starts_with(kLayers) || dot == parameter.npos || kind < dot) return {};
  const bool at_output =
      model.block_norm == BlockNormKind::output || model.block_norm == BlockNormKind::both;
  const std::string block =
      concat("blk.", parameter.substr(kLayers.size(), dot - kLayers.size()), '.');
  if (const auto expert = expert_name(parameter))
    return concat(block, "ffn_", expert->matrix.substr(1, expert->matrix.find('_') - 1), "_exps",
                  parameter.substr(kind));
  const std::string_view own = std::string_view(parameter).substr(std::min(dot, kind) + 1);
  if (type)
    for (const auto& [here, there] : type->gguf.names)
      if (own == here) return concat(block, there);
  if (parameter.ends_with("mlp.gate.e_score_correction_bias")) return block + "exp_probs_b.bias";
  if (parameter.ends_with("self_attn.sinks")) return block + "attn_sinks.weight";
  if (type && type->gguf.gate_in_up && parameter.ends_with("mlp.gate_proj.weight"))
    return block + "ffn_up.weight";
  if (kind == dot) return {};  // no module's
  const std::string_view module = std::string_view(parameter).substr(dot + 1, kind - dot - 1);
  for (const std::span<const Names> names :
       {at_output ? std::span<const Names>(kOutputNorms) : std::span<const Names>(usual_norms),
        std::span<const Names>(kGgufInBlock)})
    for (const auto& [here, there] : names)
      if (module == here) return concat(block, there, parameter.substr(kind));
  return {};
}

}  // namespace axonn
