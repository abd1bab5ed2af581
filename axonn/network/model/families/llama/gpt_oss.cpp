// gpt-oss: a window in every second layer, attention sinks, YaRN, biases everywhere, and experts
// with a clamped gate. Its published files have the experts in MXFP4. Sizes: the config.json of
// each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

constexpr std::int64_t kGptOssWindow = 128, kGptOssPattern = 2;  // if the file is silent

ModelConfig gpt_oss(ModelConfig model) {
  model.type = "gpt_oss";
  model.kv_heads = 8;
  model.head_dim = 64;
  model.rope_theta = 150000;
  model.rope = {
      .kind = RopeScalingKind::yarn, .factor = 32, .original_positions = 4096, .truncate = false};
  model.qkv_bias = true;
  model.out_bias = true;
  model.sinks = true;
  model.window = kGptOssWindow;
  model.activation = MlpKind::clamped_swiglu;
  model.router_logit_bias = true;
  model.expert_bias = true;
  return model;
}

std::vector<ModelConfig> known_gpt_osses() {
  const auto sized = [](std::int64_t experts) {
    return with_experts(gpt_oss(known_llama(201088, 131072)), experts, 4, 2880);
  };
  std::vector<ModelConfig> models;
  add_known(models, sized(32), {{"gpt-oss-20b", 24, 2880, 64, 8, 2880}});
  add_known(models, sized(128), {{"gpt-oss-120b", 36, 2880, 64, 8, 2880}});
  for (ModelConfig& model : models) model.full_layers = every_nth_layer(model, kGptOssPattern);
  return models;
}

void read_gpt_oss(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_experts(file, model, unsupported);
  model.swiglu_limit = file.real({"swiglu_limit"}, model.swiglu_limit);
  model.swiglu_alpha = file.real({"swiglu_alpha"}, model.swiglu_alpha);
  set_needed_window(
      file, model, sliding_window(file, kGptOssWindow),
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, kGptOssPattern)));
  file.find({"experts_per_token"});  // num_experts_per_tok once more
  // In the first published files, beside the object that has it.
  if (const auto original = file.integer({"initial_context_length"}, kMostRows);
      original && *original != model.rope.original_positions)
    unsupported.push_back(concat("initial_context_length = ", *original));
}

void write_gpt_oss(const ModelConfig& model, JsonObject& out) {
  write_experts(model, 0.001, out);
  out["num_local_experts"] = model.experts;
  out["intermediate_size"] = model.expert_ffn;
  out["swiglu_limit"] = model.swiglu_limit;
  out["swiglu_alpha"] = model.swiglu_alpha;
  write_window(model, out);
  write_layer_types(model, out);
}

void check_gpt_oss(const ModelConfig& model, Unsupported& unsupported) {
  check_router(model, unsupported);
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
  if (model.qk_norm != QkNormKind::none) unsupported.emplace_back("qk_norm");
  if (model.shared_ffn > 0) unsupported.push_back(concat("shared_ffn = ", model.shared_ffn));
  if (model.qkv_bias != model.out_bias) unsupported.emplace_back("qkv_bias other than out_bias");
}

/// Its files have input by output, gate and up in turn, and join all experts; so far as they are
/// packed, output by input.
void rename_gpt_oss(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  rename_part(parameter, ".mlp.gate.", ".mlp.router.", stored);
  const auto expert = expert_name(parameter);
  if (!expert) return;
  const bool down = expert->matrix == ".down_proj";
  const std::int64_t width = model.expert_ffn > 0 ? model.expert_ffn : model.ffn,
                     rows = down ? model.hidden : 2 * width;
  stored.names = {parameter};
  stored.joined = {.names = {concat(expert->module, ".experts.", down ? "down" : "gate_up",
                                    expert->bias ? "_proj_bias" : "_proj")},
                   .outer = model.experts,
                   .rows = rows,
                   .first = expert->expert * rows + (expert->matrix == ".up_proj" ? 1 : 0),
                   .step = down ? 1 : 2,
                   .transposed = true,
                   .usual = true};
}

/// In llama.cpp these have one value each.
void check_gpt_oss_gguf(const ModelConfig& model, Unsupported& unsupported) {
  check_gpt_oss(model, unsupported);
  const ModelConfig usual = gpt_oss({});
  if (model.tied) unsupported.emplace_back("tied = true");
  if (!model.qkv_bias) unsupported.emplace_back("qkv_bias = false");
  if (model.swiglu_limit != usual.swiglu_limit)
    unsupported.push_back(concat("swiglu_limit = ", model.swiglu_limit));
  if (model.swiglu_alpha != usual.swiglu_alpha)
    unsupported.push_back(concat("swiglu_alpha = ", model.swiglu_alpha));
  if (model.window == 0 || model.full_layers != every_nth_layer(model, kGptOssPattern))
    unsupported.push_back("full_layers other than each second");
  if (model.rope.kind != RopeScalingKind::yarn) need_plain_rope(model, unsupported);
}

void read_gpt_oss_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  model.rope.truncate = model.rope.kind != RopeScalingKind::yarn;  // as in all published ones
  model.expert_bias = keys.has_in_blocks("ffn_down_exps.bias");
  model.router_logit_bias = keys.has_in_blocks("ffn_gate_inp.bias");
}

}  // namespace

std::vector<ModelType> gpt_oss_types() {
  return {{.name = "gpt_oss",
           .architecture = "GptOssForCausalLM",
           .defaults = with_experts(gpt_oss(llama_defaults()), 128, 4, 0),
           .by_layer = {.windows = true},
           .bias_keys = {.attention = true},
           .is_named = true,
           .known = known_gpt_osses,
           .read = read_gpt_oss,
           .write = write_gpt_oss,
           .check = check_gpt_oss,
           .rename = rename_gpt_oss,
           .gguf = {.architecture = "gpt-oss",
                    .biases = true,
                    .mlp_norm = "post_attention_norm",
                    .windows = true,
                    .full_every = kGptOssPattern,
                    .experts = true,
                    .yarn = GgufYarn::rotary,
                    .read = read_gpt_oss_gguf,
                    .check = check_gpt_oss_gguf}}};
}

}  // namespace axonn
