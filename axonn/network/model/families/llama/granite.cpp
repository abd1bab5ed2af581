// Granite 3: a Llama with factors of the embeddings, of attention's scores, of what each block
// adds, and of the logits. Sizes: the config.json of each model.
#include <cmath>

#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

double usual_scale(const ModelConfig& model) {
  return 1 / std::sqrt(static_cast<double>(model.head_width()));
}

std::vector<ModelConfig> known_granites() {
  ModelConfig granite = known_llama(49155, 131072, 5e6);
  granite.tied = true;
  granite.embedding_scale = 12;
  granite.residual_scale = 0.22;
  std::vector<ModelConfig> models;
  ModelConfig two = granite, eight = granite;
  two.attention_scale = 0.015625;
  two.logit_scale = 1.0 / 8;
  eight.attention_scale = 0.0078125;
  eight.logit_scale = 1.0 / 16;
  add_known(models, two, {{"granite-3.1-2b", 40, 2048, 32, 8, 8192}});
  add_known(models, eight, {{"granite-3.1-8b", 40, 4096, 32, 8, 12800}});
  return models;
}

void read_granite(const JsonReader& file, ModelConfig& model, Unsupported&) {
  model.embedding_scale = file.real({"embedding_multiplier"}, 1);
  model.residual_scale = file.real({"residual_multiplier"}, 1);
  model.logit_scale = 1 / file.real({"logits_scaling"}, 1);
  const double scale = file.real({"attention_multiplier"}, 1);
  model.attention_scale = scale == usual_scale(model) ? 0 : scale;
}

void write_granite(const ModelConfig& model, JsonObject& out) {
  out["embedding_multiplier"] = model.embedding_scale;
  out["residual_multiplier"] = model.residual_scale;
  out["logits_scaling"] = 1 / model.logit_scale;
  out["attention_multiplier"] =
      model.attention_scale > 0 ? model.attention_scale : usual_scale(model);
}

void read_granite_moe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_granite(file, model, unsupported);
  read_experts(file, model, unsupported);
}

void write_granite_moe(const ModelConfig& model, JsonObject& out) {
  write_granite(model, out);
  write_experts(model, 0.001, out);
  out["num_local_experts"] = model.experts;
  out["intermediate_size"] = model.expert_ffn;
}

void check_granite_moe(const ModelConfig& model, Unsupported& unsupported) {
  check_router(model, unsupported);
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  if (model.qk_norm != QkNormKind::none) unsupported.emplace_back("qk_norm");
  if (model.shared_ffn > 0) unsupported.push_back(concat("shared_ffn = ", model.shared_ffn));
  check_head_dim(model, unsupported);
}

/// Its files join the matrices of all experts.
void rename_granite_experts(const ModelConfig&, const std::string& parameter, StoredName& stored) {
  if (const auto expert = expert_name(parameter)) {
    stored.joined.names = {sparse_moe(expert->module) + (expert->matrix == ".down_proj"
                                                             ? ".output_linear.weight"
                                                             : ".input_linear.weight")};
    stored.joined.usual = true;
  }
  rename_part(parameter, ".mlp.gate.weight", ".block_sparse_moe.router.layer.weight", stored);
}

/// llama.cpp divides logits by its logit_scale.
GgufKeys gguf_granite_scales(const ModelConfig& model) {
  return {gguf_number("embedding_scale", model.embedding_scale),
          gguf_number("residual_scale", model.residual_scale),
          gguf_number("logit_scale", 1 / model.logit_scale),
          gguf_number("attention.scale",
                      model.attention_scale > 0 ? model.attention_scale : usual_scale(model))};
}

void read_granite_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  model.embedding_scale = keys.number_or("embedding_scale", 1);
  model.residual_scale = keys.number_or("residual_scale", 1);
  model.logit_scale = 1 / keys.number_or("logit_scale", 1);
  const double usual = usual_scale(model), scale = keys.number_or("attention.scale", usual);
  model.attention_scale = static_cast<float>(scale) == static_cast<float>(usual) ? 0 : scale;
}

}  // namespace

std::vector<ModelType> granite_types() {
  ModelConfig moe = with_experts(llama_defaults(), 8, 2, 0);
  moe.type = "granitemoe";
  return {{.name = "granite",
           .architecture = "GraniteForCausalLM",
           .defaults = llama_defaults(),
           .bias_keys = {.attention = true, .mlp = true},
           .scale_keys = {.embedding = true, .attention = true, .residual = true, .logit = true},
           .fits = no_layer_slides,
           .known = known_granites,
           .read = read_granite,
           .write = write_granite,
           .check = check_head_dim,
           .gguf = {.architecture = "granite",
                    .interleaved = true,
                    .keys = gguf_granite_scales,
                    .read = read_granite_gguf,
                    .check = need_plain_rope}},
          {.name = "granitemoe",
           .architecture = "GraniteMoeForCausalLM",
           .defaults = moe,
           .bias_keys = {.attention = true},
           .scale_keys = {.embedding = true, .attention = true, .residual = true, .logit = true},
           .is_named = true,
           .fits = no_layer_slides,
           .read = read_granite_moe,
           .write = write_granite_moe,
           .check = check_granite_moe,
           .rename = rename_granite_experts,
           .gguf = {.architecture = "granitemoe",
                    .interleaved = true,
                    .experts = true,
                    .keys = gguf_granite_scales,
                    .read = read_granite_gguf,
                    .check = check_normalised_experts}}};
}

}  // namespace axonn
