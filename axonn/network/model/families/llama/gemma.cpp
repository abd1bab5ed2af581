// Gemma 2: norms that multiply by 1 + weight at the input and at the output of attention and MLP,
// an MLP gated by GELU, embeddings times the root of the width, a window in every second layer, and
// caps of scores and logits. Gemma 3: without caps, with norms of queries and keys, and with five
// layers with a window, which have a base of their own, for each without. Sizes: the config.json of
// each model.
#include <cmath>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

constexpr std::int64_t kGemmaWindow = 4096, kGemmaPattern = 6;  // if the file is silent
constexpr double kGemmaScalar = 256;                            // query_pre_attn_scalar, likewise
constexpr double kGemmaTheta = 1e6, kGemmaWindowTheta = 10000;
constexpr double kScoreCap = 50, kLogitCap = 30;  // of Gemma 2
constexpr std::int64_t kGemma2Pattern = 2;

double root_of_width(const ModelConfig& model) {
  return std::sqrt(static_cast<double>(model.hidden));
}

/// 0 if it is what a head's width gives.
double gemma_scale(const ModelConfig& model, double scalar) {
  return scalar == static_cast<double>(model.head_width()) ? 0 : 1 / std::sqrt(scalar);
}

/// query_pre_attn_scalar, rounded.
std::int64_t scalar_of(const ModelConfig& model) {
  return model.attention_scale > 0 ? std::llround(std::pow(model.attention_scale, -2))
                                   : model.head_width();
}

/// Those of both.
ModelConfig with_gemma_options(ModelConfig model) {
  model.tied = true;
  model.norm_eps = 1e-6;
  model.activation = MlpKind::geglu;
  model.block_norm = BlockNormKind::both;
  model.norm_plus_one = true;
  model.head_dim = static_cast<std::int64_t>(kGemmaScalar);
  return model;
}

ModelConfig with_gemma2_options(ModelConfig model) {
  model = with_gemma_options(std::move(model));
  model.window = kGemmaWindow;
  model.score_cap = kScoreCap;
  model.logit_cap = kLogitCap;
  return model;
}

ModelConfig with_gemma3_options(ModelConfig model) {
  model = with_gemma_options(std::move(model));
  model.qk_norm = QkNormKind::head;
  model.rope_theta = kGemmaTheta;
  model.window_rope_theta = kGemmaWindowTheta;
  return model;
}

std::vector<ModelConfig> known_gemmas_2() {
  ModelConfig gemma = with_gemma2_options(known_llama(256000, 8192));
  gemma.type = "gemma2";
  std::vector<ModelConfig> models;
  add_known(models, gemma,
            {{"gemma-2-2b", 26, 2304, 8, 4, 9216}, {"gemma-2-9b", 42, 3584, 16, 8, 14336}});
  gemma.head_dim = 128;
  gemma.attention_scale = 1 / std::sqrt(144.0);  // hidden / heads
  add_known(models, gemma, {{"gemma-2-27b", 46, 4608, 32, 16, 36864}});
  for (ModelConfig& model : models) {
    model.embedding_scale = root_of_width(model);
    model.full_layers = every_nth_layer(model, kGemma2Pattern);
  }
  return models;
}

std::vector<ModelConfig> known_gemmas() {
  ModelConfig gemma = with_gemma3_options(known_llama(262144, 32768));
  gemma.window = 512;
  std::vector<ModelConfig> models;
  add_known(models, gemma,
            {{"gemma-3-270m", 18, 640, 4, 1, 2048}, {"gemma-3-1b", 26, 1152, 4, 1, 6912}});
  gemma.vocab = 262208;
  gemma.positions = 131072;
  gemma.window = 1024;
  gemma.rope = {.kind = RopeScalingKind::linear, .factor = 8};
  gemma.window_rope_scaling = false;
  add_known(models, gemma,
            {{"gemma-3-4b", 34, 2560, 8, 4, 10240}, {"gemma-3-12b", 48, 3840, 16, 8, 15360}});
  gemma.head_dim = 128;
  gemma.attention_scale = 1 / std::sqrt(168.0);  // hidden / heads
  add_known(models, gemma, {{"gemma-3-27b", 62, 5376, 32, 16, 21504}});
  for (ModelConfig& model : models) {
    model.embedding_scale = root_of_width(model);
    model.full_layers = every_nth_layer(model, kGemmaPattern);
  }
  return models;
}

void read_common(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  if (file.flag("use_bidirectional_attention", false))
    unsupported.emplace_back("use_bidirectional_attention");
  file.find({"hidden_act"});  // what counts is hidden_activation
  model.embedding_scale = root_of_width(model);
  model.attention_scale = gemma_scale(model, file.real({"query_pre_attn_scalar"}, kGemmaScalar));
}

/// A cap: `otherwise` if the key is missing, 0 if it is null.
double read_cap(const JsonReader& file, const char* key, double otherwise) {
  return file.has(key) && !file.find({key}) ? 0 : file.real({key}, otherwise);
}

void read_gemma2(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_common(file, model, unsupported);
  set_needed_window(
      file, model, sliding_window(file, kGemmaWindow),
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, kGemma2Pattern)));
  model.score_cap = read_cap(file, "attn_logit_softcapping", kScoreCap);
  model.logit_cap = read_cap(file, "final_logit_softcapping", kLogitCap);
}

nlohmann::json cap_or_null(double cap) { return cap > 0 ? nlohmann::json(cap) : nlohmann::json(); }

void write_gemma2(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? model.window : kGemmaWindow;
  write_layer_types(model, out);
  out["query_pre_attn_scalar"] = scalar_of(model);
  out["attn_logit_softcapping"] = cap_or_null(model.score_cap);
  out["final_logit_softcapping"] = cap_or_null(model.logit_cap);
}

void read_gemma(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  // transformers does not compute the other cap.
  if (file.find({"attn_logit_softcapping"})) unsupported.emplace_back("attn_logit_softcapping");
  model.logit_cap = read_cap(file, "final_logit_softcapping", 0);
  read_common(file, model, unsupported);
  const std::int64_t pattern =
      file.integer({"sliding_window_pattern", "_sliding_window_pattern"}, kMostLayers)
          .value_or(kGemmaPattern);
  set_needed_window(
      file, model, sliding_window(file, kGemmaWindow),
      full_layers(file, model, unsupported).value_or(every_nth_layer(model, pattern)));
  if (model.window == 0) {
    model.window_rope_theta = 0;
    model.window_rope_scaling = true;
  }
}

void write_gemma(const ModelConfig& model, JsonObject& out) {
  out["sliding_window"] = model.window > 0 ? model.window : kGemmaWindow;  // null is none of its
  write_layer_types(model, out);
  write_ropes(model, out);
  out["rope_local_base_freq"] = out["rope_parameters"]["sliding_attention"]["rope_theta"];
  out["query_pre_attn_scalar"] = scalar_of(model);  // transformers takes no fraction
  out["final_logit_softcapping"] = cap_or_null(model.logit_cap);
}

void check_gemma(const ModelConfig& model, Unsupported& unsupported) {
  if (model.embedding_scale != root_of_width(model))
    unsupported.push_back(
        concat("embedding_scale = ", model.embedding_scale, " other than the root of hidden"));
  if (model.attention_scale > 0 &&
      gemma_scale(model, static_cast<double>(scalar_of(model))) != model.attention_scale)
    unsupported.push_back(concat("attention_scale = ", model.attention_scale,
                                 " that is not one over the root of an integer"));
}

void check_gemma3(const ModelConfig& model, Unsupported& unsupported) {
  check_gemma(model, unsupported);
  if (model.score_cap > 0) unsupported.push_back(concat("score_cap = ", model.score_cap));
}

void check_gemma2(const ModelConfig& model, Unsupported& unsupported) {
  check_gemma(model, unsupported);
  if (model.qk_norm != QkNormKind::none) unsupported.emplace_back("qk_norm");
  if (model.shared_ffn > 0) unsupported.push_back(concat("shared_ffn = ", model.shared_ffn));
}

/// llama.cpp divides scores by the root of the width of a head, or, in the largest model, which it
/// knows by its layers, of the width of the model over its heads.
double gguf_scale(const ModelConfig& model, std::int64_t largest) {
  const std::int64_t width =
      model.layers == largest ? model.hidden / model.heads : model.head_width();
  return gemma_scale(model, static_cast<double>(width));
}
constexpr std::int64_t kLargestGemma2 = 46, kLargestGemma = 62;

void check_gguf_scale(const ModelConfig& model, std::int64_t largest, Unsupported& unsupported) {
  if (gguf_scale(model, largest) != model.attention_scale)
    unsupported.push_back(concat("attention_scale of a model of ", model.layers, " layers"));
}

/// The layers without the window are there every so many.
void check_gguf_windows(const ModelConfig& model, std::int64_t pattern, Unsupported& unsupported) {
  if (model.window == 0 || model.full_layers != every_nth_layer(model, pattern))
    unsupported.push_back(concat("full_layers other than the last of every ", pattern));
}

void check_gemma2_gguf(const ModelConfig& model, Unsupported& unsupported) {
  if (!model.tied) unsupported.emplace_back("tied = false");
  if (model.score_cap == 0) unsupported.emplace_back("score_cap = 0");
  if (model.logit_cap == 0) unsupported.emplace_back("logit_cap = 0");
  need_plain_rope(model, unsupported);
  check_gguf_windows(model, kGemma2Pattern, unsupported);
  check_gguf_scale(model, kLargestGemma2, unsupported);
}

void check_gemma_gguf(const ModelConfig& model, Unsupported& unsupported) {
  const bool linear = model.rope.kind == RopeScalingKind::linear;
  if (!linear) need_plain_rope(model, unsupported);
  check_gguf_windows(model, kGemmaPattern, unsupported);
  check_gguf_scale(model, kLargestGemma, unsupported);
  const double theta = model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta;
  if (theta != kGemmaWindowTheta)
    unsupported.push_back(concat("window_rope_theta = ", theta, " other than ", kGemmaWindowTheta));
  if (linear && model.window_rope_scaling) unsupported.emplace_back("window_rope_scaling = true");
}

void read_gemma2_gguf(const GgufModelKeys&, ModelConfig& model) {
  model.embedding_scale = root_of_width(model);
  model.attention_scale = gguf_scale(model, kLargestGemma2);
}

void read_gemma_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  model.embedding_scale = root_of_width(model);
  model.attention_scale = gguf_scale(model, kLargestGemma);
  const double theta = keys.number_or("rope.freq_base_swa", kGemmaWindowTheta);
  model.window_rope_theta = theta == model.rope_theta ? 0 : theta;
  model.window_rope_scaling = model.rope.kind == RopeScalingKind::none;
}

GgufKeys gguf_caps(const ModelConfig& model) {
  GgufKeys keys;
  if (model.score_cap > 0) keys.push_back(gguf_number("attn_logit_softcapping", model.score_cap));
  if (model.logit_cap > 0) keys.push_back(gguf_number("final_logit_softcapping", model.logit_cap));
  return keys;
}

}  // namespace

std::vector<ModelType> gemma_types() {
  ModelConfig gemma2 = with_gemma2_options(llama_defaults());
  gemma2.type = "gemma2";
  gemma2.kv_heads = 4;
  ModelConfig defaults = with_gemma3_options(llama_defaults());
  // Sizes, too, which published files that see images leave out.
  defaults.layers = 26;
  defaults.hidden = 2304;
  defaults.heads = 8;
  defaults.kv_heads = 4;
  defaults.ffn = 9216;
  defaults.vocab = 262208;
  defaults.positions = 131072;
  return {{.name = "gemma2",
           .architecture = "Gemma2ForCausalLM",
           .defaults = gemma2,
           .by_layer = {.windows = true},
           .bias_keys = {.attention = true},
           .scale_keys = {.embedding = true, .attention = true, .caps = true},
           .is_named = true,
           .known = known_gemmas_2,
           .read = read_gemma2,
           .write = write_gemma2,
           .check = check_gemma2,
           .gguf = {.architecture = "gemma2",
                    .windows = true,
                    .full_every = kGemma2Pattern,
                    .keys = gguf_caps,
                    .read = read_gemma2_gguf,
                    .check = check_gemma2_gguf}},
          {.name = "gemma3_text",
           .architecture = "Gemma3ForCausalLM",
           .defaults = defaults,
           .by_layer = {.windows = true, .ropes = true, .window_theta = "rope_local_base_freq"},
           .bias_keys = {.attention = true},
           .scale_keys = {.embedding = true, .attention = true, .caps = true},
           .known = known_gemmas,
           .read = read_gemma,
           .write = write_gemma,
           .check = check_gemma3,
           .gguf = {.architecture = "gemma3",
                    .windows = true,
                    .full_every = kGemmaPattern,
                    .linear_and_window_ropes = true,
                    .keys = gguf_caps,
                    .read = read_gemma_gguf,
                    .check = check_gemma_gguf}}};
}

}  // namespace axonn
