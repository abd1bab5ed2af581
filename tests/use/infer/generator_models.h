// Small models that generate text, and prompts for them.
#pragma once

#include <string>
#include <vector>

#include "axonn/use/infer/generator.h"

#include "tests/support/runs.h"
#include "tests/support/with_model.h"

namespace axonn::testing_support {

using Prompts = std::vector<std::vector<std::int32_t>>;
using Continuations = std::vector<std::vector<std::int32_t>>;

inline constexpr std::int64_t kContext = 40;

inline Config config_of(const ModelConfig& sizes, const GridShape& grid = {}) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.data.tokenizer = "bytes";
  config.model = sizes;
  config.model.layers = 2;
  config.model.hidden = 96;
  config.model.heads = 24;
  config.model.head_dim = 4;
  config.model.ffn = 192;
  if (sizes.positions == 0) config.model.positions = kContext;
  config.model.init_std = 0.3;  // large enough that tokens depend on earlier ones
  return config;
}

inline ModelConfig gpt() { return {.kv_heads = 24}; }
inline ModelConfig grouped_gpt() { return {.kv_heads = 4, .tied = false}; }
inline ModelConfig opt() { return {.family = ModelFamily::opt, .kv_heads = 24}; }
inline ModelConfig llama() { return {.family = ModelFamily::llama, .kv_heads = 4, .tied = false}; }
inline ModelConfig mistral() {
  return {.family = ModelFamily::llama, .kv_heads = 4, .tied = false, .window = 5};
}
inline ModelConfig qwen3() {
  return {.family = ModelFamily::llama, .kv_heads = 2, .qk_norm = QkNormKind::head};
}

/// One layer without rotary positions, one with a window; norms at the output.
inline ModelConfig olmo3() {
  ModelConfig sizes = mistral();
  sizes.full_layers = {0};
  sizes.nope_layers = {0};
  sizes.block_norm = BlockNormKind::output;
  sizes.qk_norm = QkNormKind::width;
  sizes.rope = {.kind = RopeScalingKind::yarn, .factor = 4, .original_positions = 10};
  return sizes;
}

/// Texts cross the 14 positions beyond which all frequencies are others.
inline ModelConfig phi3() {
  ModelConfig sizes = llama();
  sizes.qkv_bias = sizes.out_bias = sizes.mlp_bias = true;
  sizes.partial_rotary_factor = 0.5;
  sizes.rope = {.kind = RopeScalingKind::longrope,
                .factor = 4,
                .original_positions = 14,
                .short_factors = {1},
                .long_factors = {3}};
  return sizes;
}

/// A layer whose states are a cache, and attention with gates.
inline ModelConfig qwen3_5() {
  ModelConfig sizes = qwen3();
  sizes.attention_gate = true;
  sizes.delta_layers = {0};
  sizes.delta = {.key_heads = 4, .value_heads = 8, .key_dim = 6, .value_dim = 8};
  return sizes;
}

/// All layers see their own chunk of 5 positions alone.
inline ModelConfig chunks() {
  ModelConfig sizes = mistral();
  sizes.window_chunks = true;
  sizes.qk_norm = QkNormKind::rotated_plain;
  return sizes;
}

/// One layer does; the other has no rotary positions, and its queries grow.
inline ModelConfig llama4() {
  ModelConfig sizes = chunks();
  sizes.full_layers = sizes.nope_layers = {1};
  sizes.nope_query_growth = 0.5;
  sizes.nope_query_positions = 4;
  return sizes;
}

/// Latent attention with latents of queries, too; the columns that rotate grow with positions.
inline ModelConfig deepseek() {
  ModelConfig sizes{.family = ModelFamily::llama, .kv_heads = 24, .tied = false};
  sizes.kv_lora_rank = 12;
  sizes.q_lora_rank = 24;
  sizes.qk_nope_head_dim = 6;
  sizes.qk_rope_head_dim = 12;
  sizes.v_head_dim = 8;
  sizes.rope_pairs = RopePairs::neighbours;
  sizes.query_growth = 0.5;
  sizes.rope.original_positions = 6;
  return sizes;
}

/// The second layer has the keys and values of the first, and both have inputs.
inline ModelConfig gemma4() {
  ModelConfig sizes = mistral();
  sizes.block_norm = BlockNormKind::both;
  sizes.qk_norm = QkNormKind::head;
  sizes.activation = MlpKind::geglu;
  sizes.value_norm = true;
  sizes.layer_input = 24;
  sizes.shared_kv_layers = 1;
  sizes.double_shared_ffn = true;
  return sizes;
}

inline ModelConfig mixtral() {
  ModelConfig sizes = llama();
  sizes.experts = 4;
  sizes.experts_per_token = 2;
  sizes.expert_ffn = 48;
  return sizes;
}

/// Adds the tokenizer "bytes" to the options.
inline Generator::Options with_tokenizer(Generator::Options options) {
  static const auto bytes = make_tokenizer("bytes");
  options.tokenizer = bytes.get();
  return options;
}

inline std::vector<Generation> generate(const Config& config, const Prompts& prompts,
                                        const GenerationOptions& wanted,
                                        const Generator::Options& options = {}) {
  std::vector<Generation> result;
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, with_tokenizer(options));
    const auto mine = generator.generate(prompts, wanted);
    if (model.grid().world().rank() == 0) result = mine;
  });
  return result;
}

inline Continuations tokens_of(const std::vector<Generation>& generations) {
  Continuations all;
  for (const Generation& generation : generations) all.push_back(generation.tokens);
  return all;
}

/// Returns prompts of 1, 4, 7, ... tokens.
inline Prompts some_prompts(int count) {
  Prompts prompts;
  for (int p = 0; p < count; ++p) {
    auto& prompt = prompts.emplace_back();
    for (int t = 0; t <= 3 * p; ++t) prompt.push_back((17 * p + 31 * t * t + 5) % 256);
  }
  return prompts;
}

struct SmallModel {
  const char* name;
  ModelConfig (*sizes)();
};
inline const GridShape kGeneratorGrids[] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                            {1, 1, 1, 2}, {2, 2, 1, 1}, {2, 1, 2, 1}, {1, 2, 2, 1},
                                            {6, 1, 1, 1}, {2, 1, 1, 2}, {1, 3, 2, 1}, {2, 2, 2, 1},
                                            {2, 2, 1, 2}};

}  // namespace axonn::testing_support
