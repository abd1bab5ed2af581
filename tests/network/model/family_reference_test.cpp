// Compares logits, loss and gradients of GPT-2 and of every variant of the Llama family with an
// independent implementation: plain loops in double.
#include "tests/support/family_reference.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"

#include "tests/support/one_rank_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using reference::Matrix;
using reference::Weights;

namespace {

constexpr std::int64_t kPositions = OneRankModel::kPositions, kSequences = OneRankModel::kSequences;

class RandomModel : public OneRankModel {
 public:
  explicit RandomModel(const ModelConfig& config) : OneRankModel(config) {
    chosen_ = reference_pass(weights()).routings;
  }

  /// With the experts that the model's own weights choose.
  reference::LlamaPass reference_pass(const Weights& weights) const {
    if (config().family == ModelFamily::gpt)
      return {gpt_logits(config(), weights, ids(), kPositions), {}};
    return llama_pass(config(), weights, ids(), kPositions, chosen_);
  }
  Matrix reference_logits(const Weights& weights) const { return reference_pass(weights).logits; }
  double reference_loss(const Weights& weights, const BalanceConfig& balance = {}) const {
    const reference::LlamaPass pass = reference_pass(weights);
    double sum = 0;
    for (double loss : cross_entropy(pass.logits, targets()).values) sum += loss;
    if (balance.weight > 0)
      sum += balance.weight * balance_loss(pass.routings, balance.scope, {kPositions});
    return balance.z > 0 ? sum + balance.z * z_loss(pass.routings, {kPositions}) : sum;
  }

 private:
  std::vector<reference::Routing> chosen_;
};

ModelConfig small_gpt() {
  return {.layers = 2, .hidden = 24, .heads = 6, .kv_heads = 6, .vocab = 31, .norm_eps = 1e-3};
}

ModelConfig small_gpt_of_groups() {
  ModelConfig config = small_gpt();
  config.kv_heads = 2;
  config.tied = false;
  config.bias = false;
  return config;
}

ModelConfig small_llama() {
  return {.family = ModelFamily::llama,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn = 40,
          .vocab = 31,
          .tied = false,
          .norm_eps = 1e-3};
}

ModelConfig small_mup() {
  ModelConfig config = small_llama();
  config.mup_base = 8;
  config.mup_base_head_dim = 9;
  return config;
}

ModelConfig small_llama31() {
  ModelConfig config = small_llama();
  config.rope_theta = 50;
  config.rope.kind = RopeScalingKind::llama3;
  config.rope.original_positions = 12;
  return config;
}

ModelConfig small_mistral() {
  ModelConfig config = small_llama();
  config.window = 4;
  config.head_dim = 10;
  return config;
}

ModelConfig small_qwen2() {
  ModelConfig config = small_llama();
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

ModelConfig small_qwen3() {
  ModelConfig config = small_llama();
  config.qk_norm = QkNormKind::head;
  config.kv_heads = 1;
  return config;
}

ModelConfig small_apertus() {
  ModelConfig config = small_llama31();
  config.qk_norm = QkNormKind::head;
  config.activation = MlpKind::xielu;
  return config;
}

ModelConfig small_mixtral() {
  ModelConfig config = small_llama();
  config.experts = 4;
  config.experts_per_token = 2;
  return config;
}

ModelConfig small_qwen3_moe() {
  ModelConfig config = small_qwen3();
  config.layers = 4;
  config.experts = 5;
  config.experts_per_token = 3;
  config.expert_ffn = 16;
  config.expert_step = 2;
  config.dense_layers = {3};
  return config;
}

ModelConfig small_olmoe() {
  ModelConfig config = small_mixtral();
  config.qk_norm = QkNormKind::width;
  config.expert_norm = false;
  return config;
}

ModelConfig small_smollm3() {
  ModelConfig config = small_llama();
  config.layers = 4;
  config.nope_layers = {1, 2};
  config.tied = true;
  return config;
}

ModelConfig small_ministral() {
  ModelConfig config = small_llama();
  config.layers = 3;
  config.window = 4;
  config.full_layers = {1};
  return config;
}

ModelConfig small_olmo2() {
  ModelConfig config = small_llama();
  config.block_norm = BlockNormKind::output;
  config.qk_norm = QkNormKind::width;
  return config;
}

ModelConfig small_olmo3() {
  ModelConfig config = small_olmo2();
  config.layers = 3;
  config.head_dim = 12;
  config.window = 4;
  config.full_layers = {2};
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 32,
                 .beta_fast = 3,
                 .attention_factor = 1.2};
  config.window_rope_scaling = false;
  return config;
}

/// Sequences are longer than original_positions.
ModelConfig small_phi3() {
  ModelConfig config = small_llama();
  config.head_dim = 8;
  config.partial_rotary_factor = 0.75;
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::longrope,
                 .factor = 4,
                 .original_positions = kPositions - 1,
                 .short_factors = {1, 1.5, 2},
                 .long_factors = {1.25, 2, 4}};
  return config;
}

/// They are as long, no longer; layers with the window have no scaling.
ModelConfig small_phi3_of_short_sequences() {
  ModelConfig config = small_phi3();
  config.rope.original_positions = kPositions;
  config.rope.attention_factor = 1.3;
  config.window = 4;
  config.full_layers = {1};
  config.window_rope_scaling = false;
  return config;
}

ModelConfig small_seed_oss() {
  ModelConfig config = small_llama();
  config.head_dim = 6;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  return config;
}

ModelConfig small_with_biases_of_xielu() {
  ModelConfig config = small_apertus();
  config.out_bias = config.mlp_bias = true;
  return config;
}

/// The options of those together: a base of the window's own, a ramp that is not rounded, layers
/// without rotary positions among those with the window, norms of experts' output.
ModelConfig small_with_kinds_of_layers() {
  ModelConfig config = small_olmo3();
  config.layers = 4;
  config.nope_layers = {1, 3};
  config.rope.attention_factor = 0;
  config.rope.truncate = false;
  config.window_rope_theta = 50;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_step = 2;
  return config;
}

ModelConfig small_granite() {
  ModelConfig config = small_llama();
  config.embedding_scale = 3;
  config.attention_scale = 0.2;
  config.residual_scale = 0.5;
  config.logit_scale = 0.7;
  return config;
}

ModelConfig small_glm4() {
  ModelConfig config = small_llama();
  config.head_dim = 8;
  config.qkv_bias = true;
  config.block_norm = BlockNormKind::both;
  config.rope_pairs = RopePairs::neighbours;
  config.partial_rotary_factor = 0.5;
  return config;
}

ModelConfig small_hunyuan() {
  ModelConfig config = small_llama();
  config.qk_norm = QkNormKind::rotated_head;
  return config;
}

/// Queries grow three times within a sequence.
ModelConfig small_ministral3() {
  ModelConfig config = small_llama();
  config.rope_theta = 20;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = (kPositions + 2) / 3,
                 .beta_fast = 3};
  config.query_growth = 0.4;
  return config;
}

ModelConfig small_gemma3() {
  ModelConfig config = small_llama();
  config.layers = 3;
  config.tied = true;
  config.activation = MlpKind::geglu;
  config.qk_norm = QkNormKind::head;
  config.block_norm = BlockNormKind::both;
  config.norm_plus_one = true;
  config.window = 4;
  config.full_layers = {2};
  config.rope_theta = 500;
  config.window_rope_theta = 50;
  config.rope = {.kind = RopeScalingKind::linear, .factor = 4};
  config.window_rope_scaling = false;
  config.embedding_scale = std::sqrt(24.0);
  config.attention_scale = 0.3;
  return config;
}

ModelConfig small_gemma2() {
  ModelConfig config = small_gemma3();
  config.qk_norm = QkNormKind::none;
  config.rope = {};
  config.window_rope_theta = 0;
  config.window_rope_scaling = true;
  config.score_cap = 0.4;
  config.logit_cap = 0.8;
  return config;
}

ModelConfig small_gemma4() {
  ModelConfig config = small_gemma3();
  config.norm_plus_one = false;
  config.head_dim = 6;
  config.full_head_dim = 8;
  config.full_kv_heads = 3;
  config.full_values_are_keys = config.value_norm = config.layer_factor = true;
  config.attention_scale = 1;
  config.logit_cap = 0.8;
  config.rope = {.kind = RopeScalingKind::proportional, .share = 0.5};
  return config;
}

ModelConfig small_gemma4_moe() {
  ModelConfig config = small_gemma4();
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = 12;
  config.shared_ffn = 20;
  config.expert_block_norms = true;
  return config;
}

/// Chunks and queries that grow thrice within a sequence; layers of four kinds.
ModelConfig small_llama4() {
  ModelConfig config = small_mixtral();
  config.layers = 4;
  config.rope_pairs = RopePairs::neighbours;
  config.qk_norm = QkNormKind::rotated_plain;
  config.window = 3;
  config.window_chunks = true;
  config.full_layers = config.nope_layers = {2, 3};
  config.nope_query_growth = 0.5;
  config.nope_query_positions = (kPositions + 3) / 3;
  config.router = RouterKind::sigmoid;
  config.expert_norm = false;
  config.expert_input_scores = true;
  config.expert_ffn = config.shared_ffn = 12;
  config.expert_step = 2;
  return config;
}

ModelConfig small_starcoder2() {
  ModelConfig config = small_seed_oss();
  config.norm = NormKind::layer;
  config.activation = MlpKind::gelu;
  return config;
}

ModelConfig small_nemotron() {
  ModelConfig config = small_llama();
  config.norm = NormKind::layer;
  config.norm_plus_one = true;
  config.activation = MlpKind::relu2;
  config.partial_rotary_factor = 0.5;
  return config;
}

ModelConfig small_cohere2() {
  ModelConfig config = small_llama();
  config.norm = NormKind::layer_without_bias;
  config.block_norm = BlockNormKind::parallel;
  config.rope_pairs = RopePairs::neighbours;
  config.window = 4;
  config.full_layers = config.nope_layers = {1};
  config.logit_scale = 0.4;
  config.residual_scale = 0.6;
  return config;
}

/// Options of several types together: norms over the width by 1 + weight, longrope on neighbours
/// with queries that grow, an MLP of all tokens beside experts, and factors.
ModelConfig small_with_options_together() {
  ModelConfig config = small_phi3();
  config.rope_pairs = RopePairs::neighbours;
  config.partial_rotary_factor = 1;
  config.head_dim = 6;
  config.query_growth = 0.3;
  config.qk_norm = QkNormKind::width;
  config.norm_plus_one = true;
  config.block_norm = BlockNormKind::both;
  config.residual_scale = 1.5;
  config.experts = 4;
  config.experts_per_token = 2;
  config.dense_layers = {0};
  config.shared_ffn = 20;
  return config;
}

ModelConfig small_with_sigmoid() {
  ModelConfig config = small_mixtral();
  config.router = RouterKind::sigmoid;
  config.router_scale = 2.5;
  config.router_bias = true;
  return config;
}

/// Experts in groups beside an MLP of all tokens.
ModelConfig small_glm4_moe() {
  ModelConfig config = small_with_sigmoid();
  config.layers = 3;
  config.experts = 6;
  config.expert_ffn = 12;
  config.expert_groups = 3;
  config.expert_groups_per_token = 2;
  config.shared_ffn = 20;
  config.dense_layers = {0};
  config.partial_rotary_factor = 0.5;
  return config;
}

/// Layers with the window and without. Gates that reach the limit have a kink there, which central
/// differences do not see.
ModelConfig small_gpt_oss() {
  ModelConfig config = small_mixtral();
  config.head_dim = 6;
  config.qkv_bias = config.out_bias = config.expert_bias = config.router_logit_bias = true;
  config.sinks = true;
  config.activation = MlpKind::clamped_swiglu;
  config.swiglu_limit = 3;
  config.window = 4;
  config.full_layers = {1};
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 12,
                 .beta_fast = 3,
                 .truncate = false};
  return config;
}

/// Latent attention whose values are narrower than its keys, and groups chosen by their best one.
ModelConfig small_deepseek2() {
  ModelConfig config = small_mixtral();
  config.kv_heads = 6;
  config.kv_lora_rank = 10;
  config.q_lora_rank = 14;
  config.qk_nope_head_dim = 5;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 7;
  config.rope_pairs = RopePairs::neighbours;
  config.rope = {.kind = RopeScalingKind::yarn,
                 .factor = 4,
                 .original_positions = 12,
                 .beta_fast = 3,
                 .attention_factor = 0.9};
  config.attention_scale = 0.4;
  config.expert_norm = false;
  config.expert_groups = 2;
  config.expert_group_best = 1;
  config.shared_ffn = 20;
  return config;
}

/// Queries without latents, values wider than keys, biases.
ModelConfig small_latent() {
  ModelConfig config = small_llama();
  config.kv_heads = 6;
  config.kv_lora_rank = 10;
  config.qk_nope_head_dim = 3;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 9;
  config.qkv_bias = config.out_bias = true;
  config.layers = 3;
  config.nope_layers = {1};
  return config;
}

/// Sinks and the clamped gate without experts.
ModelConfig small_with_sinks() {
  ModelConfig config = small_seed_oss();
  config.sinks = true;
  config.activation = MlpKind::clamped_swiglu;
  config.swiglu_limit = 3;
  return config;
}

struct Family {
  const char* name;
  ModelConfig (*config)();
};
class FamilyReference : public testing::TestWithParam<Family> {};

}  // namespace

TEST_P(FamilyReference, LogitsAreThoseOfPlainLoops) {
  RandomModel model(GetParam().config());
  const Matrix want = model.reference_logits(model.weights());
  double largest = 0;
  for (double value : want.values) largest = std::max(largest, std::abs(value));
  for (std::int64_t s = 0; s < kSequences; ++s) {
    const std::vector<float> got = model.logits(s);
    for (std::int64_t c = 0; c < want.cols; ++c)  // f32 errs by about 1e-6 of the largest
      EXPECT_NEAR(got[c], want((s + 1) * kPositions - 1, c), 1e-5 * largest) << s << ',' << c;
  }
}

TEST_P(FamilyReference, LossesAndLikeliestTargetsAreThoseOfPlainLoops) {
  RandomModel model(GetParam().config());
  const Matrix logits = model.reference_logits(model.weights());
  const Matrix want = cross_entropy(logits, model.targets()), got = model.target_losses();
  ASSERT_EQ(got.rows, want.rows);
  for (std::int64_t r = 0; r < want.rows; ++r) {
    EXPECT_NEAR(got(r, 0), want(r, 0), 2e-5 * (1 + want(r, 0))) << r;
    const auto row = logits.values.begin() + r * logits.cols;
    const bool likeliest = std::max_element(row, row + logits.cols) - row == model.targets()[r];
    EXPECT_EQ(got(r, 1), likeliest ? 1 : 0) << r;
  }
}

/// Compares the gradient of every parameter with central differences of the loss of plain loops.
void expect_gradients(const RandomModel& model, const Weights& gradients,
                      const BalanceConfig& balance = {}) {
  EXPECT_EQ(gradients.size(), model.weights().size());
  for (const auto& [name, gradient] : gradients) {
    // The first only selects, the second is not trained.
    if (name.ends_with("e_score_correction_bias") || name.ends_with("layer_scalar")) continue;
    // Central differences in double along one random direction: their relative error is step²,
    // 1e-8; that of f32 is 1e-6 of the sum of magnitudes.
    constexpr double kStep = 1e-4;
    const Random direction(9, name);
    double want = 0, size = 0;
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
      want += gradient.values[i] * direction.normal(i);
      size += std::abs(gradient.values[i]);
    }
    const auto loss_at = [&, &parameter = name](double step) {
      Weights moved = model.weights();
      auto& values = moved[parameter].values;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction.normal(i);
      return model.reference_loss(moved, balance);
    };
    EXPECT_NEAR((loss_at(kStep) - loss_at(-kStep)) / (2 * kStep), want, 2e-5 * size) << name;
    EXPECT_GT(size, 0) << name << " has no gradient";
  }
}

TEST_P(FamilyReference, LossAndEveryParametersGradientAreThoseOfPlainLoops) {
  RandomModel model(GetParam().config());
  const auto [loss, gradients] = model.backward();
  EXPECT_NEAR(loss, model.reference_loss(model.weights()), 1e-5 * loss);
  expect_gradients(model, gradients);
}

class RouterLosses : public testing::TestWithParam<BalanceScope> {};

TEST_P(RouterLosses, AndTheirGradientsAreThoseOfPlainLoops) {
  const BalanceConfig balance{.scope = GetParam(), .weight = 30, .z = 7};
  for (const ModelConfig& config :
       {small_mixtral(), small_qwen3_moe(), small_with_sigmoid(), small_glm4_moe()}) {
    RandomModel model(config);
    model.set_balance(balance);
    const auto [loss, gradients] = model.backward();
    const auto routings = model.reference_pass(model.weights()).routings;
    const auto [even, z] = model.router_losses();
    const double want = balance_loss(routings, balance.scope, {kPositions}),
                 want_z = z_loss(routings, {kPositions});
    EXPECT_NEAR(even, want, 1e-5 * want);
    EXPECT_NEAR(z, want_z, 1e-5 * want_z);
    expect_gradients(model, gradients, balance);
  }
}

INSTANTIATE_TEST_SUITE_P(Scopes, RouterLosses,
                         testing::Values(BalanceScope::sequence, BalanceScope::batch,
                                         BalanceScope::hugging_face),
                         [](const auto& scope) {
                           return std::string(kBalanceScopes[static_cast<int>(scope.param)]);
                         });

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyReference,
    testing::Values(
        Family{"Gpt2", small_gpt}, Family{"Gpt2OfGroupsWithoutBiases", small_gpt_of_groups},
        Family{"Llama2", small_llama}, Family{"Llama31", small_llama31},
        Family{"Mistral", small_mistral}, Family{"Qwen2", small_qwen2},
        Family{"Qwen3", small_qwen3}, Family{"Mixtral", small_mixtral},
        Family{"Qwen3Moe", small_qwen3_moe}, Family{"Olmoe", small_olmoe},
        Family{"Sigmoid", small_with_sigmoid}, Family{"Mup", small_mup},
        Family{"Apertus", small_apertus}, Family{"Smollm3", small_smollm3},
        Family{"Ministral", small_ministral}, Family{"Olmo2", small_olmo2},
        Family{"Olmo3", small_olmo3}, Family{"Phi3", small_phi3},
        Family{"ShortPhi3", small_phi3_of_short_sequences}, Family{"SeedOss", small_seed_oss},
        Family{"XieluBiases", small_with_biases_of_xielu},
        Family{"KindsOfLayers", small_with_kinds_of_layers}, Family{"Granite", small_granite},
        Family{"Glm4", small_glm4}, Family{"Hunyuan", small_hunyuan},
        Family{"Ministral3", small_ministral3}, Family{"Gemma2", small_gemma2},
        Family{"Gemma3", small_gemma3}, Family{"Gemma4", small_gemma4},
        Family{"Gemma4Moe", small_gemma4_moe}, Family{"Glm4Moe", small_glm4_moe},
        Family{"Starcoder2", small_starcoder2}, Family{"Nemotron", small_nemotron},
        Family{"Cohere2", small_cohere2}, Family{"OptionsTogether", small_with_options_together},
        Family{"GptOss", small_gpt_oss}, Family{"Sinks", small_with_sinks},
        Family{"Deepseek2", small_deepseek2}, Family{"Latent", small_latent},
        Family{"Llama4", small_llama4}),
    [](const auto& family) { return std::string(family.param.name); });
