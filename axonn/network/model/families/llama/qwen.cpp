// Qwen2 and Qwen2.5 with biases of queries, keys and values; Qwen3 with norms of the heads of
// queries and keys instead; Qwen3-MoE with experts, and Qwen2-MoE, with an MLP beside them that a
// gate lets in. Sizes: the config.json of each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

/// `small`: tied, and with the smaller vocabulary, as 0.5B to 3B.
ModelConfig qwen_2(bool small, std::int64_t positions, double eps) {
  ModelConfig model = known_llama(small ? 151936 : 152064, positions, 1e6);
  model.tied = small;
  model.norm_eps = eps;
  model.qkv_bias = true;
  return model;
}

std::vector<ModelConfig> known_qwens_2() {
  std::vector<ModelConfig> models;
  add_known(models, qwen_2(true, 131072, 1e-6),
            {{"qwen2-0.5b", 24, 896, 14, 2, 4864}, {"qwen2-1.5b", 28, 1536, 12, 2, 8960}});
  add_known(models, qwen_2(false, 131072, 1e-6), {{"qwen2-7b", 28, 3584, 28, 4, 18944}});
  add_known(models, qwen_2(false, 131072, 1e-5), {{"qwen2-72b", 80, 8192, 64, 8, 29568}});
  add_known(models, qwen_2(true, 32768, 1e-6), {{"qwen2.5-0.5b", 24, 896, 14, 2, 4864}});
  add_known(models, qwen_2(true, 131072, 1e-6), {{"qwen2.5-1.5b", 28, 1536, 12, 2, 8960}});
  add_known(models, qwen_2(true, 32768, 1e-6), {{"qwen2.5-3b", 36, 2048, 16, 2, 11008}});
  add_known(models, qwen_2(false, 131072, 1e-6), {{"qwen2.5-7b", 28, 3584, 28, 4, 18944}});
  add_known(models, qwen_2(false, 131072, 1e-5),
            {{"qwen2.5-14b", 48, 5120, 40, 8, 13824},
             {"qwen2.5-32b", 64, 5120, 40, 8, 27648},
             {"qwen2.5-72b", 80, 8192, 64, 8, 29568}});
  return models;
}

ModelConfig qwen_3(bool tied) {
  ModelConfig model = qwen_2(true, 40960, 1e-6);
  model.tied = tied;
  model.qkv_bias = false;
  model.qk_norm = QkNormKind::head;
  model.head_dim = 128;
  return model;
}

std::vector<ModelConfig> known_qwens_3() {
  std::vector<ModelConfig> models;
  add_known(models, qwen_3(true),
            {{"qwen3-0.6b", 28, 1024, 16, 8, 3072},
             {"qwen3-1.7b", 28, 2048, 16, 8, 6144},
             {"qwen3-4b", 36, 2560, 32, 8, 9728}});
  add_known(models, qwen_3(false),
            {{"qwen3-8b", 36, 4096, 32, 8, 12288},
             {"qwen3-14b", 40, 5120, 40, 8, 17408},
             {"qwen3-32b", 64, 5120, 64, 8, 25600}});
  return models;
}

std::vector<ModelConfig> known_qwens_3_moe() {
  std::vector<ModelConfig> models;
  add_known(models, with_experts(qwen_3(false), 128, 8, 768),
            {{"qwen3-30b-a3b", 48, 2048, 32, 4, 6144}});
  add_known(models, with_experts(qwen_3(false), 128, 8, 1536),
            {{"qwen3-235b-a22b", 94, 4096, 64, 4, 12288}});
  return models;
}

/// Qwen2-MoE with an MLP beside experts.
ModelConfig qwen_2_moe(std::int64_t positions, const ModelConfig& experts) {
  ModelConfig model = qwen_2(true, positions, 1e-6);
  model.tied = false;
  model.experts = experts.experts;
  model.experts_per_token = experts.experts_per_token;
  model.expert_ffn = experts.expert_ffn;
  model.shared_ffn = experts.shared_ffn;
  model.shared_gate = true;
  model.expert_norm = false;
  return model;
}

std::vector<ModelConfig> known_qwens_2_moe() {
  std::vector<ModelConfig> models;
  add_known(
      models,
      qwen_2_moe(8192,
                 {.experts = 60, .experts_per_token = 4, .expert_ffn = 1408, .shared_ffn = 5632}),
      {{"qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 5632}});
  add_known(
      models,
      qwen_2_moe(131072,
                 {.experts = 64, .experts_per_token = 8, .expert_ffn = 2560, .shared_ffn = 20480}),
      {{"qwen2-57b-a14b", 28, 3584, 28, 4, 18944}});
  return models;
}

constexpr std::int64_t kWindow = 4096, kFirstWithWindow = 28;  // if the file has no such keys

/// The layers without the window: by layer_types, or those before max_window_layers.
LayerList qwens_full_layers(const JsonReader& file, const ModelConfig& model,
                            Unsupported& unsupported) {
  const nlohmann::json* const key = file.find({"max_window_layers"});
  if (auto full = full_layers(file, model, unsupported)) return std::move(*full);
  if (key && !key->is_number_integer())
    refuse(file.location(), ": max_window_layers wants an integer, got ", key->dump());
  const std::int64_t first = key ? key->get<std::int64_t>() : kFirstWithWindow;
  return layers_where(model, [&](std::int64_t layer) { return layer < first; });
}

void read_dense(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  LayerList full = qwens_full_layers(file, model, unsupported);
  const std::int64_t window = sliding_window(file, kWindow);
  if (file.flag("use_sliding_window", false)) set_window(model, window, std::move(full));
}

/// Its layers all have the window, whatever layer_types and max_window_layers say.
void read_moe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  if (file.flag("use_sliding_window", false)) model.window = sliding_window(file, kWindow);
  const std::int64_t ffn = model.expert_ffn;
  read_experts(file, model, unsupported);
  model.expert_ffn = file.integer({"moe_intermediate_size"}, kMostColumns).value_or(ffn);
  model.expert_step = file.integer({"decoder_sparse_step"}, kMostLayers).value_or(1);
  model.dense_layers = file.integers("mlp_only_layers");
  model.expert_norm = file.flag("norm_topk_prob", false);
}

/// Without layer_types every second layer before max_window_layers has the window.
void read_qwen_2_moe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const ModelConfig usual = model;
  read_experts(file, model, unsupported);
  model.expert_ffn =
      file.integer({"moe_intermediate_size"}, kMostColumns).value_or(usual.expert_ffn);
  model.shared_ffn =
      file.integer({"shared_expert_intermediate_size"}, kMostColumns).value_or(usual.shared_ffn);
  model.expert_step = file.integer({"decoder_sparse_step"}, kMostLayers).value_or(1);
  model.dense_layers = file.integers("mlp_only_layers");
  model.expert_norm = file.flag("norm_topk_prob", false);
  model.qkv_bias = file.flag("qkv_bias", true);
  const bool slides = file.flag("use_sliding_window", false);
  const std::int64_t first = file.zero_or("max_window_layers", kMostLayers, kFirstWithWindow),
                     window = file.zero_or("sliding_window", kMostRows, kWindow);
  const auto listed = full_layers(file, model, unsupported);
  if (!slides) return;
  set_needed_window(file, model, window, listed.value_or(layers_where(model, [&](std::int64_t i) {
    return i % 2 != 0 || i >= first;
  })));
}

void write_dense(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  out["use_sliding_window"] = model.window > 0;
  out["max_window_layers"] = model.window > 0 ? 0 : model.layers;  // the first with a window
  if (some_layers_slide(model)) write_layer_types(model, out);     // which count first
}

void write_moe(const ModelConfig& model, JsonObject& out) {
  write_dense(model, out);
  write_experts(model, 0.001, out);
  out["num_experts"] = model.experts;
  out["norm_topk_prob"] = model.expert_norm;
  out["moe_intermediate_size"] = model.expert_ffn;
  out["decoder_sparse_step"] = model.expert_step;
  out["mlp_only_layers"] = model.dense_layers;
}

void write_qwen_2_moe(const ModelConfig& model, JsonObject& out) {
  write_moe(model, out);
  write_layer_types(model, out);
  out["shared_expert_intermediate_size"] = model.shared_ffn;
  out["qkv_bias"] = model.qkv_bias;
  out.erase("attention_bias");  // which it has not
}

void check_qwen_2_moe(const ModelConfig& model, Unsupported& unsupported) {
  check_router(model, unsupported);
  check_head_dim(model, unsupported);
}

void rename_qwen_2_moe(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".mlp.shared_experts.", ".mlp.shared_expert.", stored);
}

GgufKeys gguf_qwen_2_moe_keys(const ModelConfig& model) {
  return {{"expert_shared_feed_forward_length", static_cast<std::uint32_t>(model.shared_ffn)}};
}

/// llama.cpp does not divide the scores of the chosen experts by their sum.
void check_qwen_2_moe_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  check_all_routed(model, unsupported);
  if (model.expert_norm) unsupported.emplace_back("expert_norm = true");
}

}  // namespace

std::vector<ModelType> qwen_types() {
  ModelConfig qwen_2 = llama_defaults(), qwen_3 = qwen_2;
  qwen_2.qkv_bias = true;
  qwen_3.qk_norm = QkNormKind::head;
  ModelConfig moe_2 = with_experts(qwen_2, 60, 4, 1408), moe = with_experts(qwen_3, 128, 8, 768);
  moe_2.kv_heads = 16;
  moe_2.shared_ffn = 5632;
  moe_2.shared_gate = true;
  qwen_3.head_dim = 128;
  qwen_2.kv_heads = qwen_3.kv_heads = 32;
  moe.kv_heads = 4;
  return {
      {.name = "qwen2",
       .architecture = "Qwen2ForCausalLM",
       .defaults = qwen_2,
       .by_layer = {.windows = true},
       .known = known_qwens_2,
       .read = read_dense,
       .write = write_dense,
       .gguf = {.architecture = "qwen2"}},
      {.name = "qwen3",
       .architecture = "Qwen3ForCausalLM",
       .defaults = qwen_3,
       .by_layer = {.windows = true},
       .bias_keys = {.attention = true},
       .known = known_qwens_3,
       .read = read_dense,
       .write = write_dense,
       .gguf = {.architecture = "qwen3"}},
      {.name = "qwen2_moe",
       .architecture = "Qwen2MoeForCausalLM",
       .defaults = moe_2,
       .by_layer = {.windows = true},
       .bias_keys = {.qkv = true},
       .known = known_qwens_2_moe,
       .read = read_qwen_2_moe,
       .write = write_qwen_2_moe,
       .check = check_qwen_2_moe,
       .rename = rename_qwen_2_moe,
       .gguf = {.architecture = "qwen2moe",
                .experts = true,
                .keys = gguf_qwen_2_moe_keys,
                .read = [](const GgufModelKeys&, ModelConfig& m) { m.expert_norm = false; },
                .check = check_qwen_2_moe_gguf}},
      {.name = "qwen3_moe",
       .architecture = "Qwen3MoeForCausalLM",
       .defaults = moe,
       .bias_keys = {.attention = true},
       .known = known_qwens_3_moe,
       .read = read_moe,
       .write = write_moe,
       .check = check_router,
       .gguf = {.architecture = "qwen3moe", .experts = true, .check = check_normalised_experts}}};
}

}  // namespace axonn
