#pragma once

#include "axonn/run/config/config.h"
#include "axonn/run/config/resolve.h"

namespace axonn::testing_support {

/// A resolved config of this model, with all other settings that plans and runs need.
inline Config config_of(const ModelConfig& model, std::int64_t seq_len, std::int64_t batch) {
  Config config;
  config.model = model;
  config.data.synthetic = 20000;
  config.training.steps = 2;
  config.training.seq_len = seq_len;
  config.training.global_batch = batch;
  config.training.micro_batch = 1;
  config.training.threads = 1;
  config.optimizer.lr = 1e-3;
  return resolved(config);
}

/// A GPT with 85 million parameters in its blocks; each of 8 (z, data) coordinates has 4 sequences.
inline Config small_gpt() {
  Config config =
      config_of({.layers = 12, .hidden = 768, .heads = 12, .vocab = 32000, .tied = false}, 512, 32);
  config.training.dtype = DType::bf16;
  config.training.micro_batch = 2;
  return config;
}

/// A GPT of five blocks, more than the three and four that plans simulate; every grid of 8 ranks
/// can cut it.
inline Config tiny_gpt_config() {
  return config_of({.layers = 5, .hidden = 64, .heads = 8, .vocab = 256}, 16, 8);
}

inline Config tiny_llama_config() {
  return config_of({.family = ModelFamily::llama,
                    .layers = 6,
                    .hidden = 64,
                    .heads = 8,
                    .kv_heads = 4,
                    .ffn = 192,
                    .vocab = 256,
                    .tied = false},
                   16, 8);
}

/// A Llama with 4 experts, two for each token, in every second of seven layers.
inline Config tiny_config_with_experts() {
  Config config = tiny_llama_config();
  config.model.layers = 7;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 96;
  config.model.expert_step = 2;
  return config;
}

}  // namespace axonn::testing_support
