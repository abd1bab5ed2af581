// Sources: Hugging Face's config.json of each model, as its makers published it; for GPT-3 Brown et
// al., "Language Models are Few-Shot Learners", 2020, table 2.1; for the paper's GPTs Singh et al.,
// 2024 (arXiv 2502.08145), table II.
#include "axonn/model/known_models.h"

#include <algorithm>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

using Models = std::vector<ModelConfig>;

struct Sizes {
  const char* name;
  std::int64_t layers, hidden, heads, kv_heads = 0, ffn = 0;
};

/// Adds models that differ from `model` in their sizes.
void add(Models& models, ModelConfig model, std::initializer_list<Sizes> all) {
  for (const Sizes& s : all) {
    model.name = s.name;
    model.layers = s.layers;
    model.hidden = s.hidden;
    model.heads = s.heads;
    model.kv_heads = s.kv_heads;
    model.ffn = s.ffn;
    models.push_back(model);
  }
}

/// The paper's have heads of 128. GPT-3 XL has 16 heads of 128: the table's 24 heads do not divide
/// its width, and 16 give its 1.3 billion parameters. GPT-3 13B has width 5120: the table's 5140 is
/// not a multiple of 128.
void add_gpts(Models& models) {
  add(models, {.vocab = 32000},
      {{"gpt-5b", 24, 4096, 32},
       {"gpt-10b", 32, 5120, 40},
       {"gpt-20b", 32, 7168, 56},
       {"gpt-40b", 38, 9216, 72},
       {"gpt-60b", 56, 9216, 72},
       {"gpt-80b", 42, 12288, 96},
       {"gpt-160b", 84, 12288, 96},
       {"gpt-320b", 96, 16384, 128},
       {"gpt-640b", 192, 16384, 128}});
  add(models, {.vocab = 50257, .positions = 1024},
      {{"gpt2-124m", 12, 768, 12},
       {"gpt2-355m", 24, 1024, 16},
       {"gpt2-774m", 36, 1280, 20},
       {"gpt2-1.5b", 48, 1600, 25}});
  add(models, {.vocab = 50257, .positions = 2048},
      {{"gpt3-125m", 12, 768, 12},
       {"gpt3-350m", 24, 1024, 16},
       {"gpt3-760m", 24, 1536, 16},
       {"gpt3-1.3b", 24, 2048, 16},
       {"gpt3-2.7b", 32, 2560, 32},
       {"gpt3-6.7b", 32, 4096, 32},
       {"gpt3-13b", 40, 5120, 40},
       {"gpt3-175b", 96, 12288, 96}});
}

ModelConfig llama(std::int64_t vocab, std::int64_t positions, double rope_theta = 10000) {
  return {.family = ModelFamily::llama,
          .vocab = vocab,
          .positions = positions,
          .tied = false,
          .rope_theta = rope_theta};
}

void add_llamas(Models& models) {
  add(models, llama(32000, 2048), {{"tinyllama-1.1b", 22, 2048, 32, 4, 5632}});
  add(models, llama(32000, 4096),
      {{"llama-2-7b", 32, 4096, 32, 32, 11008},
       {"llama-2-13b", 40, 5120, 40, 40, 13824},
       {"llama-2-70b", 80, 8192, 64, 8, 28672}});
  add(models, llama(128256, 8192, 500000),
      {{"llama-3-8b", 32, 4096, 32, 8, 14336}, {"llama-3-70b", 80, 8192, 64, 8, 28672}});
  // Low frequencies are divided by the factor, for sequences of up to 131,072.
  ModelConfig longer = llama(128256, 131072, 500000), small = longer;
  longer.rope_scaling = small.rope_scaling = RopeScalingKind::llama3;
  longer.rope.factor = 8;
  small.rope.factor = 32;
  small.tied = true;
  add(models, longer,
      {{"llama-3.1-8b", 32, 4096, 32, 8, 14336},
       {"llama-3.1-70b", 80, 8192, 64, 8, 28672},
       {"llama-3.1-405b", 126, 16384, 128, 8, 53248}});
  add(models, small,
      {{"llama-3.2-1b", 16, 2048, 32, 8, 8192}, {"llama-3.2-3b", 28, 3072, 24, 8, 8192}});
  add(models, longer, {{"llama-3.3-70b", 80, 8192, 64, 8, 28672}});

  add(models, llama(32000, 32768), {{"mistral-7b-v0.1", 32, 4096, 32, 8, 14336}});
  models.back().window = 4096;
  add(models, llama(32768, 32768, 1e6), {{"mistral-7b-v0.3", 32, 4096, 32, 8, 14336}});
}

/// Experts, how many of them a token gets, and their width.
struct ExpertSizes {
  std::int64_t experts, per_token, ffn;
};

ModelConfig with_experts(ModelConfig model, const ExpertSizes& sizes) {
  model.experts = sizes.experts;
  model.experts_per_token = sizes.per_token;
  model.expert_ffn = sizes.ffn;
  return model;
}

void add_mixtures(Models& models) {
  add(models, with_experts(llama(32000, 32768, 1e6), {8, 2, 14336}),
      {{"mixtral-8x7b", 32, 4096, 32, 8, 14336}});
  add(models, with_experts(llama(32768, 65536, 1e6), {8, 2, 16384}),
      {{"mixtral-8x22b", 56, 6144, 48, 8, 16384}});
  ModelConfig olmoe = with_experts(llama(50304, 4096), {64, 8, 1024});
  olmoe.qk_norm = QkNormKind::width;
  olmoe.expert_norm = false;
  add(models, olmoe, {{"olmoe-1b-7b", 16, 2048, 16, 16, 1024}});
}

/// `small`: tied, and with the smaller vocabulary, as 0.5B to 3B.
ModelConfig qwen_2(bool small, std::int64_t positions, double eps) {
  ModelConfig model = llama(small ? 151936 : 152064, positions, 1e6);
  model.tied = small;
  model.norm_eps = eps;
  model.qkv_bias = true;
  return model;
}

void add_qwens(Models& models) {
  add(models, qwen_2(true, 131072, 1e-6),
      {{"qwen2-0.5b", 24, 896, 14, 2, 4864}, {"qwen2-1.5b", 28, 1536, 12, 2, 8960}});
  add(models, qwen_2(false, 131072, 1e-6), {{"qwen2-7b", 28, 3584, 28, 4, 18944}});
  add(models, qwen_2(false, 131072, 1e-5), {{"qwen2-72b", 80, 8192, 64, 8, 29568}});
  add(models, qwen_2(true, 32768, 1e-6), {{"qwen2.5-0.5b", 24, 896, 14, 2, 4864}});
  add(models, qwen_2(true, 131072, 1e-6), {{"qwen2.5-1.5b", 28, 1536, 12, 2, 8960}});
  add(models, qwen_2(true, 32768, 1e-6), {{"qwen2.5-3b", 36, 2048, 16, 2, 11008}});
  add(models, qwen_2(false, 131072, 1e-6), {{"qwen2.5-7b", 28, 3584, 28, 4, 18944}});
  add(models, qwen_2(false, 131072, 1e-5),
      {{"qwen2.5-14b", 48, 5120, 40, 8, 13824},
       {"qwen2.5-32b", 64, 5120, 40, 8, 27648},
       {"qwen2.5-72b", 80, 8192, 64, 8, 29568}});

  ModelConfig qwen_3 = qwen_2(true, 40960, 1e-6);
  qwen_3.qkv_bias = false;
  qwen_3.qk_norm = QkNormKind::head;
  qwen_3.head_dim = 128;
  add(models, qwen_3,
      {{"qwen3-0.6b", 28, 1024, 16, 8, 3072},
       {"qwen3-1.7b", 28, 2048, 16, 8, 6144},
       {"qwen3-4b", 36, 2560, 32, 8, 9728}});
  qwen_3.tied = false;
  add(models, qwen_3,
      {{"qwen3-8b", 36, 4096, 32, 8, 12288},
       {"qwen3-14b", 40, 5120, 40, 8, 17408},
       {"qwen3-32b", 64, 5120, 64, 8, 25600}});
  add(models, with_experts(qwen_3, {128, 8, 768}), {{"qwen3-30b-a3b", 48, 2048, 32, 4, 6144}});
  add(models, with_experts(qwen_3, {128, 8, 1536}), {{"qwen3-235b-a22b", 94, 4096, 64, 4, 12288}});
}

/// Trained on 4,096 positions with rope_theta 500,000, then extended to these.
void add_apertus(Models& models) {
  ModelConfig apertus = llama(131072, 65536, 12e6);
  apertus.activation = MlpKind::xielu;
  apertus.qk_norm = QkNormKind::head;
  apertus.rope_scaling = RopeScalingKind::llama3;
  apertus.rope.factor = 8;
  add(models, apertus,
      {{"apertus-8b", 32, 4096, 32, 8, 21504}, {"apertus-70b", 80, 8192, 64, 8, 43008}});
}

/// All models: families one after another, each from small to large.
const Models& all_models() {
  static const Models kAll = [] {
    Models models;
    add_gpts(models);
    add_llamas(models);
    add_mixtures(models);
    add_qwens(models);
    add_apertus(models);
    return models;
  }();
  return kAll;
}

}  // namespace

ModelConfig known_model(std::string_view name) {
  const Models& models = all_models();
  const auto found = std::ranges::find(models, name, &ModelConfig::name);
  if (found != models.end()) return *found;
  std::vector<std::string> names;
  for (const ModelConfig& model : models) names.push_back(model.name);
  const std::vector<std::string> guesses = nearest(name, names);
  refuse("there is no model '", name, "'",
         guesses.empty() ? "; the known names are " + join(names) : did_you_mean(guesses));
}

std::span<const std::string_view> model_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names{"none"};
    for (const ModelConfig& model : all_models()) names.emplace_back(model.name);
    return names;
  }();
  return kNames;
}

}  // namespace axonn
