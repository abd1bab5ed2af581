// Compares logits, loss and gradients of GPT-2, OPT and every variant of the Llama family with an
// independent implementation: plain loops in double.
#include "tests/support/family_reference.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"

#include "tests/network/model/small_families.h"
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
    if (!config().is_llama()) return {gpt_logits(config(), weights, ids(), kPositions), {}};
    return llama_pass(config(), weights, ids(), kPositions, chosen_);
  }
  Matrix reference_logits(const Weights& weights) const { return reference_pass(weights).logits; }
  double reference_loss(const Weights& weights, const BalanceConfig& balance = {}) const {
    const reference::LlamaPass pass = reference_pass(weights);
    double sum = 0;
    for (double loss : cross_entropy(pass.logits, targets()).values) sum += loss;
    sum += mtp_weight * mtp_loss_of(pass);
    if (balance.weight > 0)
      sum += balance.weight * balance_loss(pass.routings, balance.scope, {kPositions});
    return balance.z > 0 ? sum + balance.z * z_loss(pass.routings, {kPositions}) : sum;
  }

  /// The sum over rows of the mean loss of further tokens.
  double mtp_loss_of(const reference::LlamaPass& pass) const {
    double sum = 0;
    std::int64_t on = 1;
    for (const Matrix& logits : pass.further) {
      std::vector<std::int32_t> later(targets().begin() + on, targets().end());
      later.resize(targets().size());
      const Matrix losses = cross_entropy(logits, later);
      for (std::int64_t r = 0; r < losses.rows; ++r)
        if (r % kPositions + on < kPositions)
          sum += losses(r, 0) / static_cast<double>(config().mtp_layers);
      ++on;
    }
    return sum;
  }
  double mtp_weight = 0;

 private:
  std::vector<reference::Routing> chosen_;
};

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
    // Softmax does not see what is added to all keys alike; rotary positions tell keys apart.
    if (model.config().family == ModelFamily::opt && name.ends_with("k_proj.bias")) continue;
    // Central differences in double along one random direction: their relative error is step²
    // times the third derivative; that of f32 is 1e-6 of the sum of magnitudes.
    // Within a smaller one no ReLU turns.
    const double step = model.config().family == ModelFamily::opt ? 1e-7 : 1e-5;
    const Random direction(9, name);
    double want = 0, size = 0;
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
      want += gradient.values[i] * direction.normal(i);
      size += std::abs(gradient.values[i]);
    }
    const auto loss_at = [&, &parameter = name](double by) {
      Weights moved = model.weights();
      auto& values = moved[parameter].values;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += by * direction.normal(i);
      return model.reference_loss(moved, balance);
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), want, 2e-5 * size) << name;
    EXPECT_GT(size, 0) << name << " has no gradient";
  }
}

TEST_P(FamilyReference, LossAndEveryParametersGradientAreThoseOfPlainLoops) {
  RandomModel model(GetParam().config());
  const auto [loss, gradients] = model.backward();
  EXPECT_NEAR(loss, model.reference_loss(model.weights()), 1e-5 * loss);
  expect_gradients(model, gradients);
}

/// Two layers that predict further tokens by latents and experts, of a tied model and another.
TEST(FurtherTokens, AndTheirGradientsAreThoseOfPlainLoops) {
  for (const bool tied : {false, true}) {
    ModelConfig config = small_deepseek2();
    config.mtp_layers = 2;
    config.tied = tied;
    RandomModel model(config);
    model.set_mtp(model.mtp_weight = 0.75);
    const auto [loss, gradients] = model.backward();
    const reference::LlamaPass pass = model.reference_pass(model.weights());
    ASSERT_EQ(pass.further.size(), 2u);
    EXPECT_NEAR(model.mtp_loss() / 2, model.mtp_loss_of(pass), 1e-5 * model.mtp_loss_of(pass));
    EXPECT_NEAR(loss + 0.75 * model.mtp_loss() / 2, model.reference_loss(model.weights()),
                1e-5 * loss);
    expect_gradients(model, gradients);
  }
}

/// A layer with attention behind delta nets, whose norms multiply by 1 + weight.
TEST(FurtherTokens, OfQwensAndTheirGradientsAreThoseOfPlainLoops) {
  for (ModelConfig config : {small_qwen3_5(), small_qwen3_next()}) {
    config.mtp_layers = 1;
    RandomModel model(config);
    model.set_mtp(model.mtp_weight = 0.75);
    const auto [loss, gradients] = model.backward();
    EXPECT_NEAR(loss + 0.75 * model.mtp_loss(), model.reference_loss(model.weights()), 1e-5 * loss);
    expect_gradients(model, gradients);
  }
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
        Family{"Opt", small_opt}, Family{"OptOfGroupsWithoutBiases", small_opt_of_groups},
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
        Family{"Gemma4Moe", small_gemma4_moe}, Family{"Gemma4OfInputs", small_gemma4_of_inputs},
        Family{"Glm4Moe", small_glm4_moe}, Family{"Starcoder2", small_starcoder2},
        Family{"Nemotron", small_nemotron}, Family{"Cohere2", small_cohere2},
        Family{"OptionsTogether", small_with_options_together}, Family{"GptOss", small_gpt_oss},
        Family{"Sinks", small_with_sinks}, Family{"Deepseek2", small_deepseek2},
        Family{"Latent", small_latent}, Family{"Llama4", small_llama4},
        Family{"Llama4OfTwoWidths", small_llama4_of_two_widths}, Family{"Qwen35", small_qwen3_5},
        Family{"Qwen3Next", small_qwen3_next}, Family{"Qwen2Moe", small_qwen2_moe},
        Family{"BiasesBesideExperts", small_with_biases_beside_experts}),
    [](const auto& family) { return std::string(family.param.name); });
