// MiniMax M2: experts by sigmoid whose choice has a bias, norms of queries and keys over the width
// of all heads, and rotary positions on a part of each head. Sizes: the config.json of the model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_minimaxes() {
  ModelConfig model = with_experts(known_llama(200064, 196608, 5e6), 256, 8, 1536);
  model.type = "minimax_m2";
  model.norm_eps = 1e-6;
  model.head_dim = 128;
  model.partial_rotary_factor = 0.5;
  model.qk_norm = QkNormKind::width;
  model.router = RouterKind::sigmoid;
  model.router_bias = true;
  std::vector<ModelConfig> models;
  add_known(models, model, {{"minimax-m2", 62, 3072, 48, 8, 1536}});
  return models;
}

void read_minimax(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_experts(file, model, unsupported);
  if (const auto columns = file.integer({"rotary_dim"}, kMostColumns))  // of older files
    model.partial_rotary_factor =
        static_cast<double>(*columns) / static_cast<double>(model.head_width());
}

void write_minimax(const ModelConfig& model, JsonObject& out) {
  write_experts(model, 0.001, out);
  out["num_local_experts"] = model.experts;
  out["intermediate_size"] = model.expert_ffn;
  out["router_jitter_noise"] = 0.0;
}

void check_minimax(const ModelConfig& model, Unsupported& unsupported) {
  if (model.router != RouterKind::sigmoid) unsupported.emplace_back("router = softmax");
  if (!model.router_bias) unsupported.emplace_back("router_bias = false");
  if (model.router_scale != 1) unsupported.push_back(concat("router_scale = ", model.router_scale));
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  if (model.qk_norm != QkNormKind::width) unsupported.emplace_back("qk_norm other than width");
  if (model.shared_ffn > 0) unsupported.push_back(concat("shared_ffn = ", model.shared_ffn));
  check_all_routed(model, unsupported);
}

GgufKeys gguf_minimax_keys(const ModelConfig&) { return {{"expert_gating_func", kGgufSigmoid}}; }

void check_minimax_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (model.tied) unsupported.emplace_back("tied = true");
}

}  // namespace

std::vector<ModelType> minimax_types() {
  ModelConfig defaults = with_experts(llama_defaults(), 256, 8, 0);
  defaults.type = "minimax_m2";
  defaults.kv_heads = 8;
  defaults.head_dim = 128;
  defaults.qk_norm = QkNormKind::width;
  defaults.router = RouterKind::sigmoid;
  defaults.router_bias = true;
  return {{.name = "minimax_m2",
           .architecture = "MiniMaxM2ForCausalLM",
           .defaults = defaults,
           .rope_keys = {.part = true},
           .is_named = true,
           .fits = no_layer_slides,
           .known = known_minimaxes,
           .read = read_minimax,
           .write = write_minimax,
           .check = check_minimax,
           .rename = add_mixtral_names,
           .gguf = {.architecture = "minimax-m2",
                    .partial_rotary = true,
                    .experts = true,
                    .keys = gguf_minimax_keys,
                    .check = check_minimax_gguf}}};
}

}  // namespace axonn
