// ERNIE 4.5: a Llama with rotary positions on neighbouring columns and perhaps biases of all
// products, and with experts beside an MLP of all tokens, in all layers but some. Sizes: the
// config.json of each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_ernies() {
  ModelConfig ernie = known_llama(103424, 131072, 500000);
  ernie.tied = true;
  ernie.head_dim = 128;
  ernie.rope_pairs = RopePairs::neighbours;
  std::vector<ModelConfig> models;
  add_known(models, ernie, {{"ernie-4.5-0.3b", 18, 1024, 16, 2, 3072}});
  return models;
}

void read_ernie_moe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    return file.integer({key}, kMostExperts).value_or(otherwise);
  };
  model.experts = integer("moe_num_experts", 64);
  model.experts_per_token = integer("moe_k", 6);
  model.expert_ffn = file.integer({"moe_intermediate_size"}, kMostColumns).value_or(1536);
  model.shared_ffn = file.zero_or("moe_num_shared_experts", kMostExperts, 2) * model.expert_ffn;
  const std::int64_t first = file.zero_or("moe_layer_start_index", kMostLayers, 1),
                     step = file.integer({"moe_layer_interval"}, kMostLayers).value_or(1);
  const nlohmann::json* const end = file.find({"moe_layer_end_index"});
  const std::int64_t last =
      !end || *end == -1 ? model.layers - 1 : file.zero_or("moe_layer_end_index", kMostLayers, 0);
  model.dense_layers = layers_where(model, [&](std::int64_t layer) {
    return layer < first || layer > last || (layer + 1) % step != 0;
  });
  // Where the scores' sum is smaller, here they are divided by it.
  if (file.real({"moe_norm_min"}, 1e-12) > 1e-6) unsupported.emplace_back("moe_norm_min");
}

void write_ernie_moe(const ModelConfig& model, JsonObject& out) {
  out["moe_layer_start_index"] = dense_layer_count(model);
  out["moe_layer_end_index"] = -1;
  out["moe_layer_interval"] = 1;
  if (model.experts == 0) return;
  out["moe_num_experts"] = model.experts;
  out["moe_k"] = model.experts_per_token;
  out["moe_intermediate_size"] = model.expert_ffn;
  out["moe_num_shared_experts"] = model.shared_ffn / model.expert_ffn;
  out["router_aux_loss_coef"] = 0.001;
}

void check_ernie_moe(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::softmax) unsupported.emplace_back("router = sigmoid");
  if (!model.router_bias) unsupported.emplace_back("router_bias = false");
  if (model.router_scale != 1) unsupported.push_back(concat("router_scale = ", model.router_scale));
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  if (model.qk_norm != QkNormKind::none) unsupported.emplace_back("qk_norm");
  if (model.window > 0) unsupported.push_back(concat("window = ", model.window));
  need_whole_shared_experts(model, unsupported);
  check_first_layers_dense(model, unsupported);
}

/// The bias of the choice is a row there.
void rename_ernie_bias(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  if (parameter.ends_with(".gate.e_score_correction_bias")) stored.transposed = true;
  rename_part(parameter, ".gate.e_score_", ".moe_statics.e_score_", stored);
}

GgufKeys gguf_ernie_moe_keys(const ModelConfig& model) {
  return {{"leading_dense_block_count", static_cast<std::uint32_t>(dense_layer_count(model))},
          {"interleave_moe_layer_step", std::uint32_t{1}},
          {"expert_shared_count", static_cast<std::uint32_t>(model.shared_ffn / model.expert_ffn)},
          {"expert_shared_feed_forward_length", static_cast<std::uint32_t>(model.shared_ffn)}};
}

void check_ernie_moe_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (model.experts == 0) unsupported.emplace_back("experts = 0");
}

}  // namespace

std::vector<ModelType> ernie_types() {
  ModelConfig defaults = llama_defaults();
  defaults.tied = true;
  defaults.norm_eps = 1e-5;
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.rope_theta = 500000;
  defaults.rope_pairs = RopePairs::neighbours;
  ModelConfig moe = with_experts(defaults, 64, 6, 1536);
  moe.type = "ernie4_5_moe";
  moe.kv_heads = 4;
  moe.head_dim = 0;
  moe.router_bias = true;
  return {{.name = "ernie4_5",
           .architecture = "Ernie4_5ForCausalLM",
           .defaults = defaults,
           .bias_keys = {.all = true},
           .fits = no_layer_slides,
           .known = known_ernies,
           .gguf = {.architecture = "ernie4_5", .check = need_plain_rope}},
          {.name = "ernie4_5_moe",
           .architecture = "Ernie4_5_MoeForCausalLM",
           .defaults = moe,
           .bias_keys = {.all = true},
           .is_named = true,
           .dense_or_experts = true,
           .read = read_ernie_moe,
           .write = write_ernie_moe,
           .check = check_ernie_moe,
           .rename = rename_ernie_bias,
           .gguf = {.architecture = "ernie4_5-moe",
                    .experts = true,
                    .keys = gguf_ernie_moe_keys,
                    .check = check_ernie_moe_gguf}}};
}

}  // namespace axonn
