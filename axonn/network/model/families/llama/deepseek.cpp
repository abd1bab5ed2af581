// DeepSeek: latent attention, and in all layers but the first experts, in groups or not, beside an
// MLP of all tokens. V2 chooses by softmax and a group's best score, V3 by sigmoid with a bias and
// a group's two best. Sizes: the config.json of each model.
#include <cmath>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/nn/attention/latent_attention.h"

namespace axonn {

namespace {

double usual_score_scale(const ModelConfig& model) {
  return 1 / std::sqrt(static_cast<double>(model.qk_nope_head_dim + model.qk_rope_head_dim));
}
double score_growth(const ModelConfig& model) {
  return model.attention_scale > 0 ? model.attention_scale / usual_score_scale(model) : 1;
}

ModelConfig deepseek(ModelConfig model, const char* type) {
  model.type = type;
  model.rope_pairs = RopePairs::neighbours;
  model.kv_lora_rank = 512;
  model.q_lora_rank = 1536;
  return model;
}

ModelConfig deepseek_v2(ModelConfig model) {
  model = deepseek(std::move(model), "deepseek_v2");
  model.expert_norm = false;
  model.expert_group_best = 1;
  return model;
}

ModelConfig deepseek_v3(ModelConfig model) {
  model = deepseek(std::move(model), "deepseek_v3");
  model.router = RouterKind::sigmoid;
  model.router_bias = true;
  return model;
}

/// Adds YaRN's factor of 40, with scores that grow by mscale_all_dim.
void lengthen(ModelConfig& model, double mscale_all_dim) {
  model.rope = {.kind = RopeScalingKind::yarn,
                .factor = 40,
                .original_positions = 4096,
                .attention_factor = 1};
  const double root = 0.1 * mscale_all_dim * std::log(model.rope.factor) + 1;
  model.attention_scale = root * root * usual_score_scale(model);
}

void set_experts(ModelConfig& model, std::int64_t ffn, std::int64_t shared, std::int64_t dense) {
  model.expert_ffn = ffn;
  model.shared_ffn = shared * ffn;
  for (std::int64_t layer = 0; layer < dense; ++layer) model.dense_layers.push_back(layer);
}

std::vector<ModelConfig> known_deepseeks_2() {
  ModelConfig lite = deepseek_v2(with_experts(known_llama(102400, 163840), 64, 6, 0));
  lite.norm_eps = 1e-6;
  lengthen(lite, 0.707);
  ModelConfig whole = lite;
  lite.q_lora_rank = 0;
  set_experts(lite, 1408, 2, 1);
  set_experts(whole, 1536, 2, 1);
  whole.experts = 160;
  whole.expert_groups = 8;
  whole.expert_groups_per_token = 3;
  whole.router_scale = 16;
  std::vector<ModelConfig> models;
  add_known(models, lite, {{"deepseek-v2-lite", 27, 2048, 16, 16, 10944}});
  add_known(models, whole, {{"deepseek-v2", 60, 5120, 128, 128, 12288}});
  return models;
}

std::vector<ModelConfig> known_deepseeks_3() {
  ModelConfig three = deepseek_v3(with_experts(known_llama(129280, 163840), 256, 8, 0));
  three.norm_eps = 1e-6;
  lengthen(three, 1);
  set_experts(three, 2048, 1, 3);
  three.expert_groups = 8;
  three.expert_groups_per_token = 4;
  three.router_scale = 2.5;
  ModelConfig moonlight = deepseek_v3(with_experts(known_llama(163840, 8192, 50000), 64, 6, 0));
  moonlight.q_lora_rank = 0;
  set_experts(moonlight, 1408, 2, 1);
  moonlight.router_scale = 2.446;
  std::vector<ModelConfig> models;
  add_known(models, three, {{"deepseek-v3", 61, 7168, 128, 128, 18432}});
  add_known(models, moonlight, {{"moonlight-16b-a3b", 27, 2048, 16, 16, 11264}});
  return models;
}

void read_latents(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const auto columns = [&](const char* key, std::int64_t otherwise) {
    return file.integer({key}, kMostColumns).value_or(otherwise);
  };
  model.kv_lora_rank = columns("kv_lora_rank", model.kv_lora_rank);
  model.q_lora_rank =
      file.integer_or("q_lora_rank", kMostColumns, {.missing = model.q_lora_rank, .null = 0});
  model.qk_nope_head_dim = columns("qk_nope_head_dim", model.qk_nope_head_dim);
  model.qk_rope_head_dim = columns("qk_rope_head_dim", model.qk_rope_head_dim);
  model.v_head_dim = columns("v_head_dim", model.v_head_dim);
  file.find({"qk_head_dim"});  // the sum of two of these
  model.head_dim = 0;          // theirs is qk_rope_head_dim
  if (model.kv_heads != model.heads)
    unsupported.push_back(concat("num_key_value_heads = ", model.kv_heads));
  const double growth = read_score_growth(file, model);
  if (growth != 1) model.attention_scale = growth * usual_score_scale(model);
}

void read_deepseek(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_latents(file, model, unsupported);
  const bool three = model.router == RouterKind::sigmoid;
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    return file.integer({key}, kMostExperts).value_or(otherwise);
  };
  model.experts = integer("n_routed_experts", model.experts);
  model.experts_per_token = integer("num_experts_per_tok", model.experts_per_token);
  model.expert_ffn =
      file.integer({"moe_intermediate_size"}, kMostColumns).value_or(model.expert_ffn);
  model.shared_ffn =
      file.zero_or("n_shared_experts", kMostExperts, three ? 1 : 2) * model.expert_ffn;
  model.router_scale = file.real({"routed_scaling_factor"}, three ? 2.5 : 1);
  set_dense_layers(model, file.zero_or("first_k_dense_replace", kMostLayers, three ? 3 : 0));
  if (integer("moe_layer_freq", 1) != 1) unsupported.emplace_back("moe_layer_freq other than 1");
}

void read_groups(const JsonReader& file, ModelConfig& model, std::int64_t groups,
                 std::int64_t kept) {
  const auto read = [&](const char* key, std::int64_t missing) {
    return file.integer_or(key, kMostExperts, {.missing = missing, .null = 1});
  };
  model.expert_groups = read("n_group", groups);
  model.expert_groups_per_token = read("topk_group", kept);
}

/// Adds a key that has another value than models of the type have.
void need_text(const JsonReader& file, const char* key, const char* value,
               Unsupported& unsupported) {
  const std::string text = file.text({key}, value);
  if (text != value) unsupported.push_back(concat(key, " '", text, '\''));
}

void read_deepseek_v2(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_deepseek(file, model, unsupported);
  need_text(file, "scoring_func", "softmax", unsupported);
  file.find({"norm_topk_prob"});  // as in transformers, it changes nothing
  const std::string method = file.text({"topk_method"}, "greedy");
  read_groups(file, model, 1, 1);
  if (method == "greedy")
    model.expert_groups = model.expert_groups_per_token = 1;
  else if (method != "group_limited_greedy")
    unsupported.push_back("topk_method '" + method + "'");
}

void read_deepseek_v3(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_deepseek(file, model, unsupported);
  need_text(file, "scoring_func", "sigmoid", unsupported);
  need_text(file, "topk_method", "noaux_tc", unsupported);
  model.expert_norm = file.flag("norm_topk_prob", true);
  if (!file.flag("rope_interleave", true)) model.rope_pairs = RopePairs::halves;
  read_groups(file, model, 8, 4);
}

void write_deepseek(const ModelConfig& model, JsonObject& out) {
  out["head_dim"] = model.qk_rope_head_dim;
  out["kv_lora_rank"] = model.kv_lora_rank;
  out["q_lora_rank"] = model.q_lora_rank > 0 ? nlohmann::json(model.q_lora_rank) : nlohmann::json();
  out["qk_head_dim"] = model.qk_nope_head_dim + model.qk_rope_head_dim;
  out["qk_nope_head_dim"] = model.qk_nope_head_dim;
  out["qk_rope_head_dim"] = model.qk_rope_head_dim;
  out["v_head_dim"] = model.v_head_dim;
  out["first_k_dense_replace"] = dense_layer_count(model);
  write_score_growth(score_growth(model), model, out);
  if (model.experts == 0) return;
  out["n_routed_experts"] = model.experts;
  out["num_experts_per_tok"] = model.experts_per_token;
  out["moe_intermediate_size"] = model.expert_ffn;
  out["n_shared_experts"] = model.shared_ffn / model.expert_ffn;
  out["n_group"] = model.expert_groups;
  out["topk_group"] = model.expert_groups_per_token;
  out["routed_scaling_factor"] = model.router_scale;
  out["norm_topk_prob"] = model.expert_norm;
}

void write_deepseek_v2(const ModelConfig& model, JsonObject& out) {
  write_deepseek(model, out);
  out["topk_method"] = model.expert_groups > 1 ? "group_limited_greedy" : "greedy";
}

void write_deepseek_v3(const ModelConfig& model, JsonObject& out) {
  write_deepseek(model, out);
  out["rope_interleave"] = model.rope_pairs == RopePairs::neighbours;
}

void check_deepseek(const ModelConfig& model, Unsupported& unsupported) {
  if (model.window > 0) unsupported.push_back(concat("window = ", model.window));
  if (model.qkv_bias != model.out_bias) unsupported.emplace_back("qkv_bias other than out_bias");
  need_whole_shared_experts(model, unsupported);
  check_first_layers_dense(model, unsupported);
  // Files have the exponent of YaRN's factor.
  const double growth = score_growth(model);
  if (growth != 1 && (model.rope.kind != RopeScalingKind::yarn || growth < 1))
    unsupported.push_back(concat("attention_scale = ", model.attention_scale));
}

void check_deepseek_v2(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::softmax) unsupported.emplace_back("router = sigmoid");
  if (model.router_bias) unsupported.emplace_back("router_bias = true");
  if (model.expert_norm) unsupported.emplace_back("expert_norm = true");
  if (model.experts > 0 && model.shared_ffn == 0) unsupported.emplace_back("shared_ffn = 0");
  check_deepseek(model, unsupported);
}

void check_deepseek_v3(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::sigmoid) unsupported.emplace_back("router = softmax");
  if (!model.router_bias) unsupported.emplace_back("router_bias = false");
  check_deepseek(model, unsupported);
}

/// With absorbed products, llama.cpp's attention has one key-value head, whose key is the latent
/// and the rotated columns, and its value the latent.
GgufKeys gguf_deepseek_keys(const ModelConfig& model) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const std::int64_t rotated = model.qk_rope_head_dim;
  GgufKeys keys{
      {"attention.head_count_kv", number(1)},
      {"attention.kv_lora_rank", number(model.kv_lora_rank)},
      {"attention.key_length", number(model.kv_lora_rank + rotated)},
      {"attention.value_length", number(model.kv_lora_rank)},
      {"attention.key_length_mla", number(model.qk_nope_head_dim + rotated)},
      {"attention.value_length_mla", number(model.v_head_dim)},
      {"leading_dense_block_count", number(dense_layer_count(model))},
      {"expert_gating_func", model.router == RouterKind::sigmoid ? kGgufSigmoid : kGgufSoftmax},
      {"expert_shared_count", number(model.shared_ffn / model.expert_ffn)},
      {"expert_weights_norm", model.expert_norm},
      gguf_number("expert_weights_scale", model.router_scale)};
  if (model.q_lora_rank > 0) keys.emplace_back("attention.q_lora_rank", number(model.q_lora_rank));
  if (model.expert_groups > 1) {
    keys.emplace_back("expert_group_count", number(model.expert_groups));
    keys.emplace_back("expert_group_used_count", number(model.expert_groups_per_token));
  }
  if (const double growth = score_growth(model); growth != 1)
    keys.push_back(gguf_number("rope.scaling.yarn_log_multiplier",
                               (std::sqrt(growth) - 1) / std::log(model.rope.factor)));
  return keys;
}

/// The kind of router tells the versions apart.
void read_deepseek_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  const bool third = model.router == RouterKind::sigmoid;
  model.type = third ? "deepseek_v3" : "deepseek_v2";
  model.expert_group_best = third ? 2 : 1;
  model.expert_norm = keys.integer_or("expert_weights_norm", 0) != 0;
  model.kv_heads = model.heads;
  model.kv_lora_rank = keys.needed("attention.kv_lora_rank", kMostColumns);
  model.q_lora_rank = keys.integer_or("attention.q_lora_rank", 0);
  model.qk_rope_head_dim = keys.needed("attention.key_length", kMostColumns) - model.kv_lora_rank;
  model.qk_nope_head_dim =
      keys.needed("attention.key_length_mla", kMostColumns) - model.qk_rope_head_dim;
  model.v_head_dim = keys.needed("attention.value_length_mla", kMostColumns);
  model.head_dim = 0;
  model.partial_rotary_factor = 1;
  if (model.rope.kind != RopeScalingKind::yarn) return;
  model.rope.attention_factor = 1;
  const double slope = keys.number_or("rope.scaling.yarn_log_multiplier", 0),
               root = slope * std::log(model.rope.factor) + 1;
  if (slope > 0) model.attention_scale = root * root * usual_score_scale(model);
}

void check_deepseek_gguf(const ModelConfig& model, Unsupported& unsupported) {
  check_deepseek(model, unsupported);
  if (model.rope_pairs != RopePairs::neighbours) unsupported.emplace_back("rope_pairs = halves");
  // All norms have one eps there, here those of latents their own.
  if (const float eps = LatentAttention::Options().eps; static_cast<float>(model.norm_eps) != eps)
    unsupported.push_back(concat("norm_eps = ", model.norm_eps, " other than ", eps));
  // The number of layers says whether queries have latents.
  if (const bool none = model.layers == 26 || model.layers == 27; none != (model.q_lora_rank == 0))
    unsupported.push_back(
        concat("q_lora_rank = ", model.q_lora_rank, " of ", model.layers, " layers"));
  if (model.shared_ffn == 0)
    unsupported.emplace_back(model.experts > 0 ? "shared_ffn = 0" : "experts = 0");
  if (model.expert_groups > model.expert_groups_per_token && model.expert_group_best != 2)
    unsupported.push_back(concat("expert_group_best = ", model.expert_group_best));
  if (model.rope.kind == RopeScalingKind::yarn &&
      (rope_magnitude(model.rope) != 1 || score_growth(model) == 1))
    unsupported.emplace_back(
        "rope_scaling = yarn with an attention factor other than 1, or without attention_scale");
}

}  // namespace

std::vector<ModelType> deepseek_types() {
  const GgufForm gguf{.architecture = "deepseek2",
                      .experts = true,
                      .yarn = GgufYarn::scores,
                      .keys = gguf_deepseek_keys,
                      .read = read_deepseek_gguf,
                      .check = check_deepseek_gguf};
  const ModelConfig two = deepseek_v2(with_experts(llama_defaults(), 64, 0, 1407)),
                    three = deepseek_v3(with_experts(llama_defaults(), 256, 8, 2048));
  return {{.name = "deepseek_v2",
           .architecture = "DeepseekV2ForCausalLM",
           .defaults = two,
           .bias_keys = {.attention = true, .mlp = true},
           .scale_keys = {.attention = true},
           .groups_experts = true,
           .is_named = true,
           .dense_or_experts = true,
           .known = known_deepseeks_2,
           .read = read_deepseek_v2,
           .write = write_deepseek_v2,
           .check = check_deepseek_v2,
           .gguf = gguf},
          {.name = "deepseek_v3",
           .architecture = "DeepseekV3ForCausalLM",
           .defaults = three,
           .bias_keys = {.attention = true},
           .rope_keys = {.pairs = true},
           .scale_keys = {.attention = true},
           .groups_experts = true,
           .further = {.key = "num_nextn_predict_layers"},
           .is_named = true,
           .dense_or_experts = true,
           .known = known_deepseeks_3,
           .read = read_deepseek_v3,
           .write = write_deepseek_v3,
           .check = check_deepseek_v3,
           .gguf = gguf}};
}

}  // namespace axonn
