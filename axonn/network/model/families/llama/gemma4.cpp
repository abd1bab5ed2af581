// Gemma 4: as Gemma 3, with norms by their weight alone, norms of values, scores without a scale, a
// constant of each layer, and, in layers without the window, wider heads whose values may be their
// keys and of whose columns some rotate; and, in some models, experts beside the MLP, with norms of
// their own; or embeddings of each layer, and last layers that use the keys and values of others.
// Sizes: the config.json of each model.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/model/gguf_source.h"

namespace axonn {

namespace {

constexpr std::int64_t kGemma4Window = 512, kGemma4Pattern = 6;  // if the file is silent
constexpr std::int64_t kGlobalHead = 512, kInputsPerLayer = 256, kInputVocab = 262144;

double embeddings_factor(const ModelConfig& model) {
  return std::sqrt(static_cast<double>(model.hidden));
}

ModelConfig gemma4_defaults() {
  ModelConfig model = llama_defaults();
  model.type = "gemma4_text";
  model.tied = true;
  model.layers = 30;
  model.hidden = 2304;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 256;
  model.ffn = 9216;
  model.vocab = 262144;
  model.positions = 131072;
  model.activation = MlpKind::geglu;
  model.qk_norm = QkNormKind::head;
  model.block_norm = BlockNormKind::both;
  model.value_norm = true;
  model.layer_factor = true;
  model.rope_theta = 1e6;
  model.window_rope_theta = 10000;
  return model;
}

/// 0 if it is that of other layers.
std::int64_t or_0(std::int64_t of_full, std::int64_t of_others) {
  return of_full == of_others ? 0 : of_full;
}

/// The heads of layers without the window in files of transformers 5, which list single layers.
void read_layers(const JsonReader& layers, ModelConfig& model, Unsupported& unsupported) {
  bool first = true;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const auto of_layer = layers.object(std::to_string(layer).c_str());
    std::int64_t width = model.head_dim, heads = model.kv_heads;
    if (of_layer) {
      width = of_layer->integer({"head_dim"}, kMostColumns).value_or(width);
      heads = of_layer->integer({"num_key_value_heads"}, kMostColumns).value_or(heads);
    }
    const bool full = model.window_of(layer) == 0;
    const std::int64_t full_width = or_0(width, model.head_dim),
                       full_heads = or_0(heads, model.kv_heads);
    const bool same = full_width == model.full_head_dim && full_heads == model.full_kv_heads;
    if (full ? !first && !same : full_width + full_heads > 0)
      return unsupported.push_back(concat("per_layer_config of layer ", layer));
    if (!full) continue;
    model.full_head_dim = full_width;
    model.full_kv_heads = full_heads;
    first = false;
  }
}

void read_full_layers(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.full_values_are_keys = file.flag("attention_k_eq_v", false);
  if (const auto layers = file.object("per_layer_config"))
    return read_layers(*layers, model, unsupported);
  model.full_head_dim =
      or_0(file.integer({"global_head_dim"}, kMostColumns).value_or(kGlobalHead), model.head_dim);
  const auto heads = file.integer({"num_global_key_value_heads"}, kMostColumns);
  if (heads && model.full_values_are_keys) model.full_kv_heads = or_0(*heads, model.kv_heads);
}

void read_experts_beside(const JsonReader& file, ModelConfig& model) {
  model.experts = file.needed({"num_experts"}, kMostExperts);
  model.experts_per_token = file.needed({"top_k_experts"}, kMostExperts);
  model.expert_ffn = file.needed({"moe_intermediate_size"}, kMostColumns);
  model.shared_ffn = model.ffn;
  model.expert_block_norms = true;
}

void read_gemma4(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.layer_input = file.zero_or("hidden_size_per_layer_input", kMostColumns, kInputsPerLayer);
  const std::int64_t inputs =
      file.integer({"vocab_size_per_layer_input"}, kMostRows).value_or(kInputVocab);
  if (model.layer_input > 0 && inputs != model.vocab)
    unsupported.push_back(
        concat("vocab_size_per_layer_input = ", inputs, " other than vocab_size"));
  model.shared_kv_layers = file.zero_or("num_kv_shared_layers", kMostLayers, 0);
  const bool wide = file.flag("use_double_wide_mlp", false);
  model.double_shared_ffn = wide && model.shared_kv_layers > 0;
  if (file.text({"use_bidirectional_attention"}, "vision") != "vision")
    unsupported.emplace_back("use_bidirectional_attention");
  for (const char* const key :
       {"hidden_act", "moe_intermediate_size", "num_experts", "top_k_experts"})
    file.find({key});  // the last three count with enable_moe_block alone
  if (file.flag("enable_moe_block", false)) read_experts_beside(file, model);
  if (!file.object("rope_parameters")) unsupported.emplace_back("a file without rope_parameters");
  LayerList full =
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, kGemma4Pattern));
  // As in transformers, whatever the file says.
  if (full.empty() || full.back() != model.layers - 1) full.push_back(model.layers - 1);
  set_needed_window(file, model, sliding_window(file, kGemma4Window), std::move(full));
  if (model.window == 0) {
    model.window_rope_theta = 0;
    model.window_rope_scaling = true;
  }
  read_full_layers(file, model, unsupported);
  model.embedding_scale = embeddings_factor(model);
  model.attention_scale = 1;
  model.logit_cap = file.real({"final_logit_softcapping"}, 0);
}

void write_gemma4(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? model.window : kGemma4Window;
  write_layer_types(model, out);
  write_ropes(model, out);
  for (const char* const key : {"rope_scaling", "rope_theta"}) out.erase(key);  // of older versions
  out["global_head_dim"] = model.head_width(0);
  out["num_global_key_value_heads"] = model.kv_heads_of(0);
  out["attention_k_eq_v"] = model.full_values_are_keys;
  out["final_logit_softcapping"] =
      model.logit_cap > 0 ? nlohmann::json(model.logit_cap) : nlohmann::json();
  out["hidden_size_per_layer_input"] = model.layer_input;
  out["vocab_size_per_layer_input"] = model.vocab;
  out["num_kv_shared_layers"] = model.shared_kv_layers;
  out["use_double_wide_mlp"] = model.double_shared_ffn;
  out["enable_moe_block"] = model.experts > 0;
  if (model.experts == 0) return;
  out["intermediate_size"] = model.shared_ffn;
  out["num_experts"] = model.experts;
  out["top_k_experts"] = model.experts_per_token;
  out["moe_intermediate_size"] = model.expert_ffn;
}

void check_gemma4(const ModelConfig& model, Unsupported& unsupported) {
  if (model.embedding_scale != embeddings_factor(model))
    unsupported.push_back(
        concat("embedding_scale = ", model.embedding_scale, " other than the root of hidden"));
  if (model.attention_scale != 1)
    unsupported.push_back(concat("attention_scale = ", model.attention_scale, " other than 1"));
  if (model.score_cap > 0) unsupported.push_back(concat("score_cap = ", model.score_cap));
  if (model.window_of(model.layers - 1) > 0) unsupported.emplace_back("a window in the last layer");
  if (model.qk_norm != QkNormKind::head) unsupported.emplace_back("qk_norm other than head");
  if (model.full_kv_heads > 0 && !model.full_values_are_keys)
    unsupported.emplace_back("full_kv_heads without full_values_are_keys");
  if (model.experts == 0) return;
  check_router(model, unsupported);
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  if (!model.expert_block_norms) unsupported.emplace_back("expert_block_norms = false");
}

/// Experts and their router lie beside the MLP in its files.
void rename_gemma4(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".mlp.shared_experts.", ".mlp.", stored);
  rename_part(parameter, ".mlp.gate.norm.weight", ".router.scale", stored);
  rename_part(parameter, ".mlp.gate.per_expert_scale", ".router.per_expert_scale", stored);
  rename_part(parameter, ".mlp.gate.weight", ".router.proj.weight", stored);
  if (!expert_name(parameter)) return;
  for (std::string& name : stored.joined.names) name.erase(name.find(".mlp."), 4);
  stored.joined.usual = true;
}

constexpr std::array<std::array<std::string_view, 2>, 15> kGgufNames = {
    {{"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
     {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
     {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
     {"per_layer_input_gate.weight", "inp_gate.weight"},
     {"per_layer_projection.weight", "proj.weight"},
     {"post_per_layer_input_norm.weight", "post_norm.weight"},
     {"layer_scalar", "layer_output_scale.weight"},
     {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
     {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
     {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
     {"mlp.gate.norm.weight", "ffn_gate_inp.scale"},
     {"mlp.gate.per_expert_scale", "ffn_down_exps.scale"},
     {"mlp.shared_experts.gate_proj.weight", "ffn_gate.weight"},
     {"mlp.shared_experts.up_proj.weight", "ffn_up.weight"},
     {"mlp.shared_experts.down_proj.weight", "ffn_down.weight"}}};

/// Of layers without the window; what does not rotate is divided by so much that it turns by 0.
std::vector<float> gemma4_rope_factors(const ModelConfig& model) {
  constexpr float kNoTurn = 1e30F;
  const bool part = model.rope.kind == RopeScalingKind::proportional;
  const std::int64_t pairs = model.head_width(0) / 2,
                     turn = part ? static_cast<std::int64_t>(model.rope.share *
                                                             static_cast<double>(pairs))
                                 : pairs;
  std::vector<float> factors(static_cast<std::size_t>(pairs), kNoTurn);
  std::fill_n(factors.begin(), turn, 1.0F);
  return factors;
}

GgufKeys gguf_gemma4_keys(const ModelConfig& model) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const std::uint32_t full = number(model.head_width(0)), other = number(model.head_width());
  std::vector<bool> slides;
  std::vector<std::int32_t> kv_heads, widths;
  const std::int64_t ffn = model.experts > 0 ? model.shared_ffn : model.ffn;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const bool wide = model.double_shared_ffn && model.keys_of(layer) != layer;
    slides.push_back(model.window_of(layer) > 0);
    kv_heads.push_back(static_cast<std::int32_t>(model.kv_heads_of(model.window_of(layer))));
    widths.push_back(static_cast<std::int32_t>(wide ? 2 * ffn : ffn));
  }
  GgufKeys keys{
      {"attention.key_length", full},
      {"attention.value_length", full},
      {"attention.key_length_swa", other},
      {"attention.value_length_swa", other},
      {"attention.head_count_kv", std::move(kv_heads)},
      {"attention.sliding_window_pattern", std::move(slides)},
      {"attention.shared_kv_layers", number(model.shared_kv_layers)},
      {"embedding_length_per_layer_input", number(model.layer_input)},
      {"feed_forward_length", std::move(widths)},
      {"rope.dimension_count", full},
      {"rope.dimension_count_swa", other},
      gguf_number("rope.freq_base_swa",
                  model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta)};
  if (model.logit_cap > 0) keys.push_back(gguf_number("final_logit_softcapping", model.logit_cap));
  return keys;
}

/// The key of layers without the window is `own`, of others `own`_swa.
void read_gemma4_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  model.head_dim = keys.needed("attention.key_length_swa", kMostColumns);
  model.full_head_dim = or_0(keys.needed("attention.key_length", kMostColumns), model.head_dim);
  const std::vector<std::int64_t> kv_heads = keys.integers("attention.head_count_kv"),
                                  widths = keys.integers("feed_forward_length");
  const auto of = [](const std::vector<std::int64_t>& all, std::int64_t layer) {
    return layer < std::ssize(all) ? all[layer] : all.empty() ? 0 : all.back();
  };
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (model.window_of(layer) > 0) model.kv_heads = of(kv_heads, layer);
  if (!model.full_layers.empty()) {
    const std::int64_t full = model.full_layers.front();
    model.full_kv_heads = or_0(of(kv_heads, full), model.kv_heads);
    model.full_values_are_keys =
        !keys.file().tensors().contains(concat("blk.", full, ".attn_v.weight"));
  }
  model.layer_input = keys.integer_or("embedding_length_per_layer_input", 0);
  model.shared_kv_layers = keys.integer_or("attention.shared_kv_layers", 0);
  model.double_shared_ffn = !widths.empty() && widths.back() != widths.front();
  model.window_rope_theta = keys.number_or("rope.freq_base_swa", model.rope_theta);
  if (model.window_rope_theta == model.rope_theta) model.window_rope_theta = 0;
  model.partial_rotary_factor = 1;
  const std::vector<float> factors = gguf_rotary_factors(keys.file());
  const std::int64_t turn = std::ranges::count(factors, 1.0F);
  if (turn < std::ssize(factors)) {
    model.rope = {.kind = RopeScalingKind::proportional,
                  .share = static_cast<double>(turn) / static_cast<double>(factors.size())};
    model.window_rope_scaling = false;
  }
  model.embedding_scale = embeddings_factor(model);
  model.attention_scale = 1;
  model.expert_block_norms = model.experts > 0;
  if (model.experts > 0) model.shared_ffn = model.ffn;
}

void check_gemma4_gguf(const ModelConfig& model, Unsupported& unsupported) {
  check_gemma4(model, unsupported);
  if (model.window == 0) unsupported.emplace_back("window = 0");
  if (model.rope.kind != RopeScalingKind::proportional) need_plain_rope(model, unsupported);
  if (model.rope.kind == RopeScalingKind::proportional && model.window_rope_scaling)
    unsupported.emplace_back("window_rope_scaling = true");
  // There the last layers use the keys of the two before them.
  const std::int64_t first = model.layers - model.shared_kv_layers;
  for (std::int64_t layer = first; layer < model.layers; ++layer)
    if (model.keys_of(layer) != first - (model.window_of(layer) > 0 ? 2 : 1))
      return unsupported.push_back(
          concat("keys of layer ", layer, " in layer ", model.keys_of(layer)));
}

}  // namespace

std::vector<ModelType> gemma4_types() {
  return {{.name = "gemma4_text",
           .architecture = "Gemma4ForCausalLM",
           .defaults = gemma4_defaults(),
           .by_layer = {.windows = true, .ropes = true},
           .bias_keys = {.attention = true},
           .rope_keys = {.share = true},
           .scale_keys = {.embedding = true, .attention = true, .caps = true},
           .is_named = true,
           .dense_or_experts = true,
           .read = read_gemma4,
           .write = write_gemma4,
           .check = check_gemma4,
           .rename = rename_gemma4,
           .gguf = {.architecture = "gemma4",
                    .windows = true,
                    .experts = true,
                    .linear_and_window_ropes = true,
                    .names = kGgufNames,
                    .rope_factors = gemma4_rope_factors,
                    .keys = gguf_gemma4_keys,
                    .read = read_gemma4_gguf,
                    .check = check_gemma4_gguf}}};
}

}  // namespace axonn
