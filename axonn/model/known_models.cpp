// Sources: Hugging Face's config.json of each model, as its makers published it; for GPT-3 Brown et
// al., "Language Models are Few-Shot Learners", 2020, table 2.1; for the paper's GPTs Singh et al.,
// 2024 (arXiv 2502.08145), table II.
#include "axonn/model/known_models.h"

#include <algorithm>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/options/options_suggest.h"

namespace axonn {

namespace {

using Models = std::vector<ModelConfig>;

struct Sizes {
  const char* name;
  std::int64_t layers, hidden, heads;
};

/// Heads of 128, as in the paper.
void add_paper_gpts(Models& models) {
  for (const Sizes& s : {Sizes{"gpt-5b", 24, 4096, 32}, Sizes{"gpt-10b", 32, 5120, 40},
                         Sizes{"gpt-20b", 32, 7168, 56}, Sizes{"gpt-40b", 38, 9216, 72},
                         Sizes{"gpt-60b", 56, 9216, 72}, Sizes{"gpt-80b", 42, 12288, 96},
                         Sizes{"gpt-160b", 84, 12288, 96}, Sizes{"gpt-320b", 96, 16384, 128},
                         Sizes{"gpt-640b", 192, 16384, 128}})
    models.push_back(
        {.layers = s.layers, .hidden = s.hidden, .heads = s.heads, .vocab = 32000, .name = s.name});
}

/// GPT-3 XL has 16 heads of 128: the table's 24 heads do not divide its width, and 16 give its 1.3
/// billion parameters. GPT-3 13B has width 5120: the table's 5140 is not a multiple of 128.
void add_gpt2_and_3(Models& models) {
  const auto add = [&](const Sizes& s, std::int64_t positions) {
    models.push_back({.layers = s.layers,
                      .hidden = s.hidden,
                      .heads = s.heads,
                      .vocab = 50257,
                      .positions = positions,
                      .name = s.name});
  };
  for (const Sizes& s : {Sizes{"gpt2-124m", 12, 768, 12}, Sizes{"gpt2-355m", 24, 1024, 16},
                         Sizes{"gpt2-774m", 36, 1280, 20}, Sizes{"gpt2-1.5b", 48, 1600, 25}})
    add(s, 1024);
  for (const Sizes& s : {Sizes{"gpt3-125m", 12, 768, 12}, Sizes{"gpt3-350m", 24, 1024, 16},
                         Sizes{"gpt3-760m", 24, 1536, 16}, Sizes{"gpt3-1.3b", 24, 2048, 16},
                         Sizes{"gpt3-2.7b", 32, 2560, 32}, Sizes{"gpt3-6.7b", 32, 4096, 32},
                         Sizes{"gpt3-13b", 40, 5120, 40}, Sizes{"gpt3-175b", 96, 12288, 96}})
    add(s, 2048);
}

struct LlamaSizes {
  const char* name;
  std::int64_t layers, hidden, heads, kv_heads, ffn;
};

ModelConfig llama(const LlamaSizes& s, std::int64_t vocab, std::int64_t positions) {
  return {.family = ModelFamily::llama,
          .layers = s.layers,
          .hidden = s.hidden,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .ffn = s.ffn,
          .vocab = vocab,
          .positions = positions,
          .tied = false,
          .name = s.name};
}

void add_llama_2(Models& models) {
  models.push_back(llama({"tinyllama-1.1b", 22, 2048, 32, 4, 5632}, 32000, 2048));
  for (const LlamaSizes& s : {LlamaSizes{"llama-2-7b", 32, 4096, 32, 32, 11008},
                              LlamaSizes{"llama-2-13b", 40, 5120, 40, 40, 13824},
                              LlamaSizes{"llama-2-70b", 80, 8192, 64, 8, 28672}})
    models.push_back(llama(s, 32000, 4096));
}

ModelConfig llama_3(const LlamaSizes& s) {
  ModelConfig model = llama(s, 128256, 8192);
  model.rope_theta = 500000;
  return model;
}

/// With low frequencies divided by `factor`, for sequences of up to 131,072.
ModelConfig llama_3_long(const LlamaSizes& s, double factor) {
  ModelConfig model = llama_3(s);
  model.positions = 131072;
  model.rope_scaling = RopeScalingKind::llama3;
  model.rope.factor = factor;
  return model;
}

void add_llama_3(Models& models) {
  models.push_back(llama_3({"llama-3-8b", 32, 4096, 32, 8, 14336}));
  models.push_back(llama_3({"llama-3-70b", 80, 8192, 64, 8, 28672}));
  models.push_back(llama_3_long({"llama-3.1-8b", 32, 4096, 32, 8, 14336}, 8));
  models.push_back(llama_3_long({"llama-3.1-70b", 80, 8192, 64, 8, 28672}, 8));
  models.push_back(llama_3_long({"llama-3.1-405b", 126, 16384, 128, 8, 53248}, 8));
  for (const LlamaSizes& s : {LlamaSizes{"llama-3.2-1b", 16, 2048, 32, 8, 8192},
                              LlamaSizes{"llama-3.2-3b", 28, 3072, 24, 8, 8192}}) {
    models.push_back(llama_3_long(s, 32));
    models.back().tied = true;
  }
  models.push_back(llama_3_long({"llama-3.3-70b", 80, 8192, 64, 8, 28672}, 8));
}

void add_mistral(Models& models) {
  models.push_back(llama({"mistral-7b-v0.1", 32, 4096, 32, 8, 14336}, 32000, 32768));
  models.back().window = 4096;
  models.push_back(llama({"mistral-7b-v0.3", 32, 4096, 32, 8, 14336}, 32768, 32768));
  models.back().rope_theta = 1e6;
}

/// `small`: tied, and with the smaller vocabulary, as 0.5B to 3B.
ModelConfig qwen(const LlamaSizes& s, bool small, std::int64_t positions) {
  ModelConfig model = llama(s, small ? 151936 : 152064, positions);
  model.rope_theta = 1e6;
  model.norm_eps = 1e-6;
  model.tied = small;
  return model;
}

void add_qwen_2(Models& models) {
  const auto add = [&](const LlamaSizes& s, bool small, std::int64_t positions, double eps) {
    models.push_back(qwen(s, small, positions));
    models.back().norm_eps = eps;
    models.back().qkv_bias = true;
  };
  add({"qwen2-0.5b", 24, 896, 14, 2, 4864}, true, 131072, 1e-6);
  add({"qwen2-1.5b", 28, 1536, 12, 2, 8960}, true, 131072, 1e-6);
  add({"qwen2-7b", 28, 3584, 28, 4, 18944}, false, 131072, 1e-6);
  add({"qwen2-72b", 80, 8192, 64, 8, 29568}, false, 131072, 1e-5);
  add({"qwen2.5-0.5b", 24, 896, 14, 2, 4864}, true, 32768, 1e-6);
  add({"qwen2.5-1.5b", 28, 1536, 12, 2, 8960}, true, 131072, 1e-6);
  add({"qwen2.5-3b", 36, 2048, 16, 2, 11008}, true, 32768, 1e-6);
  add({"qwen2.5-7b", 28, 3584, 28, 4, 18944}, false, 131072, 1e-6);
  add({"qwen2.5-14b", 48, 5120, 40, 8, 13824}, false, 131072, 1e-5);
  add({"qwen2.5-32b", 64, 5120, 40, 8, 27648}, false, 131072, 1e-5);
  add({"qwen2.5-72b", 80, 8192, 64, 8, 29568}, false, 131072, 1e-5);
}

void add_qwen_3(Models& models) {
  const auto add = [&](const LlamaSizes& s, bool tied) {
    models.push_back(qwen(s, true, 40960));
    models.back().tied = tied;
    models.back().head_dim = 128;
    models.back().qk_norm = true;
  };
  add({"qwen3-0.6b", 28, 1024, 16, 8, 3072}, true);
  add({"qwen3-1.7b", 28, 2048, 16, 8, 6144}, true);
  add({"qwen3-4b", 36, 2560, 32, 8, 9728}, true);
  add({"qwen3-8b", 36, 4096, 32, 8, 12288}, false);
  add({"qwen3-14b", 40, 5120, 40, 8, 17408}, false);
  add({"qwen3-32b", 64, 5120, 64, 8, 25600}, false);
}

/// All models: families one after another, each from small to large.
const Models& all_models() {
  static const Models kAll = [] {
    Models models;
    add_paper_gpts(models);
    add_gpt2_and_3(models);
    add_llama_2(models);
    add_llama_3(models);
    add_mistral(models);
    add_qwen_2(models);
    add_qwen_3(models);
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
  const std::vector<std::string> guesses = nearest(std::string(name), names);
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
