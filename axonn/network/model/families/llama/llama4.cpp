// Llama 4: layers whose positions see those of their own chunk alone, with rotary positions on
// neighbours and norms of queries and keys without weights, among layers without rotary positions,
// which see all and whose queries grow; experts beside an MLP of their width, whose inputs the
// scores multiply, in all layers or some. Sizes: the config.json of each model.
#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

// If the file is silent.
constexpr std::int64_t kChunkSize = 8192, kExpertWidth = 8192, kDenseWidth = 16384;

ModelConfig with_llama4_options(ModelConfig model) {
  model.type = "llama4_text";
  model.norm_eps = 1e-5;
  model.rope_theta = 500000;
  model.rope_pairs = RopePairs::neighbours;
  model.qk_norm = QkNormKind::rotated_plain;
  model.window = kChunkSize;
  model.window_chunks = true;
  model.nope_query_growth = 0.1;
  model.nope_query_positions = 8192;
  model.router = RouterKind::sigmoid;
  model.expert_norm = false;
  model.expert_input_scores = true;
  model.head_dim = 128;
  model.kv_heads = 8;
  return model;
}

std::vector<ModelConfig> known_llama4s() {
  const auto sized = [](std::int64_t positions, std::int64_t experts) {
    ModelConfig model =
        with_experts(with_llama4_options(known_llama(202048, positions)), experts, 1, kExpertWidth);
    model.shared_ffn = model.expert_ffn;
    return model;
  };
  ModelConfig scout = sized(10485760, 16), maverick = sized(1048576, 128);
  scout.rope = {.kind = RopeScalingKind::llama3,
                .factor = 16,
                .original_positions = 8192,
                .low_freq_factor = 1,
                .high_freq_factor = 1};
  maverick.qk_norm = QkNormKind::none;
  maverick.expert_step = 2;
  std::vector<ModelConfig> models;
  add_known(models, scout, {{"llama-4-scout", 48, 5120, 40, 8, kDenseWidth}});
  add_known(models, maverick, {{"llama-4-maverick", 48, 5120, 40, 8, kDenseWidth}});
  for (ModelConfig& model : models)
    model.full_layers = model.nope_layers = every_nth_layer(model, kRopeInterval);
  return models;
}

/// The layers of moe_layers, or every so many.
void read_routed_layers(const JsonReader& file, ModelConfig& model) {
  model.expert_step =
      file.integer({"interleave_moe_layer_step"}, kMostLayers).value_or(model.expert_step);
  model.dense_layers = {};
  if (!file.find({"moe_layers"})) return;
  const LayerList routed = file.integers("moe_layers");
  const auto has_some = [&](std::int64_t layer) {
    return std::ranges::find(routed, layer) != routed.end();
  };
  const LayerList usual =
      layers_where(model, [&](std::int64_t layer) { return model.has_experts(layer); });
  if (layers_where(model, has_some) == usual) return;
  model.expert_step = 1;
  model.dense_layers = layers_where(model, [&](std::int64_t layer) { return !has_some(layer); });
}

/// Layers without rotary positions see all unless layer_types says otherwise.
void read_chunks(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  model.nope_layers = layers_without_rope(file, model);
  const LayerList full = full_layers(file, model, unsupported).value_or(model.nope_layers);
  const std::int64_t chunk =
      file.integer_or("attention_chunk_size", kMostRows, {.missing = kChunkSize, .null = 0});
  if (chunk == 0 && std::ssize(full) < model.layers)
    refuse(file.location(), ": there are layers of chunked_attention, but no attention_chunk_size");
  set_window(model, chunk, full);
  model.window_chunks = model.window > 0;
}

void read_llama4(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_experts(file, model, unsupported);  // of the width intermediate_size
  model.shared_ffn = model.expert_ffn;
  model.ffn = file.integer({"intermediate_size_mlp"}, kMostColumns).value_or(kDenseWidth);
  read_routed_layers(file, model);
  read_chunks(file, model, unsupported);
  if (!file.flag("use_qk_norm", true)) model.qk_norm = QkNormKind::none;
  // In the first published files a number.
  const nlohmann::json* const tunes = file.find({"attn_temperature_tuning"});
  const bool grows =
      tunes && tunes->is_number() ? *tunes != 0 : file.flag("attn_temperature_tuning", true);
  const double growth = file.real({"attn_scale"}, model.nope_query_growth);
  model.nope_query_growth = grows && !model.nope_layers.empty() ? growth : 0;
  model.nope_query_positions =
      file.integer({"floor_scale"}, kMostRows).value_or(model.nope_query_positions);
  for (const char* const key : {"for_llm_compressor", "cache_implementation"}) file.find({key});
}

void write_llama4(const ModelConfig& model, JsonObject& out) {
  const bool routed = model.experts > 0;
  const std::int64_t width = routed ? model.expert_ffn : model.ffn;
  write_experts(model, 0.001, out);
  out["num_local_experts"] = routed ? model.experts : 1;
  out["num_experts_per_tok"] = routed ? model.experts_per_token : 1;
  out["router_jitter_noise"] = 0.0;
  out["intermediate_size"] = width;
  out["intermediate_size_mlp"] = model.ffn;
  out["interleave_moe_layer_step"] = model.expert_step;
  out["moe_layers"] =
      layers_where(model, [&](std::int64_t layer) { return model.has_experts(layer); });
  write_rope_layers(model, out);
  write_layer_types(model, out);
  out["attention_chunk_size"] = model.window > 0 ? model.window : kChunkSize;
  out["use_qk_norm"] = model.qk_norm != QkNormKind::none;
  out["attn_temperature_tuning"] = model.nope_query_growth > 0;
  out["attn_scale"] = model.nope_query_growth > 0 ? model.nope_query_growth : 0.1;
  out["floor_scale"] = model.nope_query_positions;
}

void check_llama4(const ModelConfig& model, Unsupported& unsupported) {
  if (model.qk_norm != QkNormKind::none && model.qk_norm != QkNormKind::rotated_plain)
    unsupported.emplace_back("qk_norm other than rotated-plain");
  if (model.window > 0 && !model.window_chunks) unsupported.emplace_back("window_chunks = false");
  if (model.rope_pairs != RopePairs::neighbours) unsupported.emplace_back("rope_pairs = halves");
  if (model.experts == 0) return;
  if (model.router != RouterKind::sigmoid) unsupported.emplace_back("router = softmax");
  if (model.router_scale != 1) unsupported.push_back(concat("router_scale = ", model.router_scale));
  if (model.router_bias) unsupported.emplace_back("router_bias = true");
  if (model.expert_norm) unsupported.emplace_back("expert_norm = true");
  if (model.shared_ffn != model.expert_ffn)
    unsupported.push_back(concat("shared_ffn = ", model.shared_ffn, " other than expert_ffn"));
}

GgufKeys gguf_llama4_keys(const ModelConfig& model) {
  return {{"interleave_moe_layer_step", static_cast<std::uint32_t>(model.expert_step)}};
}

constexpr std::int64_t kMaverickExperts = 128;  // by which llama.cpp knows that there are no norms

void read_llama4_gguf(const GgufModelKeys&, ModelConfig& model) {
  model.window = kChunkSize;
  model.full_layers = model.nope_layers = every_nth_layer(model, kRopeInterval);
  model.shared_ffn = model.expert_ffn;
  if (model.experts == kMaverickExperts) model.qk_norm = QkNormKind::none;
}

/// llama.cpp has one value each of these; the number of experts says whether there are norms.
void check_llama4_gguf(const ModelConfig& model, Unsupported& unsupported) {
  check_llama4(model, unsupported);
  const auto all = every_nth_layer(model, kRopeInterval);
  if (model.experts == 0) unsupported.emplace_back("experts = 0");
  if (!model.dense_layers.empty()) unsupported.emplace_back("dense_layers");
  if (model.window != kChunkSize) unsupported.push_back(concat("window = ", model.window));
  if (model.full_layers != all) unsupported.emplace_back("full_layers other than each fourth");
  if (model.nope_layers != all) unsupported.emplace_back("nope_layers other than each fourth");
  if (!all.empty() && (model.nope_query_growth != 0.1 || model.nope_query_positions != 8192))
    unsupported.push_back(concat("nope_query_growth = ", model.nope_query_growth, " from ",
                                 model.nope_query_positions, " positions on"));
  if ((model.qk_norm == QkNormKind::none) != (model.experts == kMaverickExperts))
    unsupported.push_back(concat("qk_norm = ", kQkNormKinds[static_cast<int>(model.qk_norm)],
                                 " with ", model.experts, " experts"));
}

/// Its files have input by output, and join all experts, gate before up.
void rename_llama4(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".mlp.", ".feed_forward.", stored);
  rename_part(parameter, ".mlp.gate.", ".feed_forward.router.", stored);
  rename_part(parameter, ".mlp.shared_experts.", ".feed_forward.shared_expert.", stored);
  const auto expert = expert_name(parameter);
  if (!expert) return;
  constexpr std::string_view kMlp = ".mlp";
  const bool down = expert->matrix == ".down_proj";
  const std::int64_t rows = down ? model.hidden : 2 * model.expert_ffn;
  stored.names = {parameter};
  stored.joined = {
      .names = {concat(expert->module.substr(0, expert->module.size() - kMlp.size()),
                       ".feed_forward.experts", down ? ".down_proj" : ".gate_up_proj")},
      .outer = model.experts,
      .rows = rows,
      .first = expert->expert * rows + (expert->matrix == ".up_proj" ? model.expert_ffn : 0),
      .transposed = true,
      .usual = true};
}

}  // namespace

std::vector<ModelType> llama4_types() {
  ModelConfig defaults = with_experts(with_llama4_options(llama_defaults()), 16, 1, 0);
  defaults.shared_ffn = defaults.ffn = kExpertWidth;
  return {{.name = "llama4_text",
           .architecture = "Llama4ForCausalLM",
           .defaults = defaults,
           .by_layer = {.windows = true, .nopes = true},
           .bias_keys = {.attention = true},
           .is_named = true,
           .dense_or_experts = true,
           .known = known_llama4s,
           .read = read_llama4,
           .write = write_llama4,
           .check = check_llama4,
           .rename = rename_llama4,
           .gguf = {.architecture = "llama4",
                    .windows = true,
                    .experts = true,
                    .keys = gguf_llama4_keys,
                    .read = read_llama4_gguf,
                    .check = check_llama4_gguf}}};
}

}  // namespace axonn
