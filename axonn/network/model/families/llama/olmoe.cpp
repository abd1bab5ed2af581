// OLMoE: norms of queries and keys over the width of all heads, and experts. Sizes: the config.json
// of the model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

std::vector<ModelConfig> known_olmoes() {
  ModelConfig olmoe = with_experts(known_llama(50304, 4096), 64, 8, 1024);
  olmoe.qk_norm = QkNormKind::width;
  olmoe.expert_norm = false;
  std::vector<ModelConfig> models;
  add_known(models, olmoe, {{"olmoe-1b-7b", 16, 2048, 16, 16, 1024}});
  return models;
}

void read_olmoe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_experts(file, model, unsupported);
  model.expert_norm = file.flag("norm_topk_prob", false);
}

void write_olmoe(const ModelConfig& model, JsonObject& out) {
  write_experts(model, 0.01, out);
  out["num_experts"] = model.experts;
  out["norm_topk_prob"] = model.expert_norm;
  out["intermediate_size"] = model.expert_ffn;
  out["clip_qkv"] = nullptr;
}

void check_olmoe(const ModelConfig& model, Unsupported& unsupported) {
  check_router(model, unsupported);
  check_all_routed(model, unsupported);
  if (model.window > 0) unsupported.push_back(concat("window = ", model.window));
  check_head_dim(model, unsupported);
}

/// llama.cpp does not divide the scores of the chosen experts by their sum, and has an output layer
/// and as many key heads as heads.
void check_olmoe_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (model.expert_norm) unsupported.emplace_back("expert_norm = true");
  if (model.tied) unsupported.emplace_back("tied = true");
  if (model.kv_heads != model.heads)
    unsupported.push_back(concat("kv_heads = ", model.kv_heads, " other than heads"));
}

}  // namespace

std::vector<ModelType> olmoe_types() {
  ModelConfig defaults = with_experts(llama_defaults(), 64, 8, 0);
  defaults.norm_eps = 1e-5;
  defaults.qk_norm = QkNormKind::width;
  return {{.name = "olmoe",
           .architecture = "OlmoeForCausalLM",
           .defaults = defaults,
           .bias_keys = {.attention = true},
           .known = known_olmoes,
           .read = read_olmoe,
           .write = write_olmoe,
           .check = check_olmoe,
           .gguf = {.architecture = "olmoe",
                    .experts = true,
                    .read = [](const GgufModelKeys&, ModelConfig& m) { m.expert_norm = false; },
                    .check = check_olmoe_gguf}}};
}

}  // namespace axonn
