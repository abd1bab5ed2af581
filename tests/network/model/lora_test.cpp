// Compares adapters with the model of merged weights, and adapters on grids with those on one rank.
#include <cmath>
#include <map>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/adapters/layer_adapters.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/grids.h"
#include "tests/support/one_rank_model.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using reference::Matrix;
using reference::Weights;

namespace {

ModelConfig adapted_model(ModelFamily family) {
  return {.family = family,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn = 40,
          .vocab = 31,
          .tied = family == ModelFamily::gpt,
          .norm_eps = 1e-3};
}

ModelConfig with_adapters(ModelConfig config, double dropout = 0) {
  config.lora = {.rank = 3, .alpha = 6, .dropout = dropout};
  return config;
}

/// Adapters of some layers of the second block, with ranks and alphas of their own.
ModelConfig with_own_layers(ModelConfig config) {
  config = with_adapters(config);
  config.lora.targets = {"q_proj", "v_proj", "layers.1.mlp.down_proj"};
  config.lora.layers = {1};
  config.lora.rank_pattern = {"layers.1.self_attn.q_proj 5", "q_proj 2"};
  config.lora.alpha_pattern = {"v_proj 12"};
  return config;
}

ModelConfig with_magnitudes(ModelConfig config) {
  config = with_adapters(config);
  config.lora.dora = true;
  return config;
}

/// Adapters of some products, of the embedding and of the output layer; other parts are trained
/// whole.
ModelConfig with_ends(ModelConfig config) {
  const bool gpt = config.family == ModelFamily::gpt;
  config = with_adapters(config);
  config.lora.targets = gpt ? std::vector<std::string>{"c_attn", "wte", "lm_head"}
                            : std::vector<std::string>{"q_proj", "embed_tokens", "lm_head"};
  config.lora.modules = gpt ? std::vector<std::string>{"ln_f", "wpe", "h.1.mlp"}
                            : std::vector<std::string>{"input_layernorm", "layers.0.mlp"};
  return config;
}

/// The embedding and the output layer are trained whole.
ModelConfig with_whole_ends(ModelConfig config) {
  config = with_adapters(config);
  config.lora.modules = {config.family == ModelFamily::gpt ? "wte" : "embed_tokens", "lm_head"};
  return resolved(config, config.vocab, 0);
}

constexpr double kScale = 6.0 / 3;  // alpha / rank

/// At 1e-2, rounding errors would reach the tolerance within the ten steps compared.
constexpr double kLr = 2e-3;

/// The layer of an adapter's parameter, "h.0.attn.c_attn" of "h.0.attn.c_attn.lora_A.weight", or
/// "".
std::string module_of(const std::string& name, const std::string& kind) {
  const std::size_t at = name.find(".lora_" + kind + ".weight");
  return at == std::string::npos ? "" : name.substr(0, at);
}

Matrix scaled(Matrix m, double factor) {
  for (double& value : m.values) value *= factor;
  return m;
}

/// The weights of the model without adapters that is equivalent: W0 + s B A. `scales` has those of
/// modules with another scale.
Weights merged(const Weights& weights, const std::map<std::string, double>& scales = {}) {
  Weights all;
  for (const auto& [name, values] : weights)
    if (name.find(".lora_") == std::string::npos) all[name] = values;
  for (const auto& [name, a] : weights) {
    const std::string module = module_of(name, "A");
    if (module.empty()) continue;
    const double scale = scales.contains(module) ? scales.at(module) : kScale;
    const Matrix change = scaled(matmul(weights.at(module + ".lora_B.weight"), a), scale);
    Matrix& weight = all.at(module + ".weight");
    for (std::size_t i = 0; i < change.values.size(); ++i) weight.values[i] += change.values[i];
  }
  return all;
}

/// What DoRA makes of the sum of weight and change (out, in): rows of norm 1 times magnitudes.
struct Decomposed {
  Decomposed(Matrix sum, const Matrix& magnitudes)
      : directions(std::move(sum)), weight(directions) {
    for (std::int64_t r = 0; r < directions.rows; ++r) {
      double square = 0;
      for (std::int64_t c = 0; c < directions.cols; ++c)
        square += directions(r, c) * directions(r, c);
      factors.push_back(magnitudes.values[r] / std::sqrt(square));
      for (std::int64_t c = 0; c < directions.cols; ++c) {
        weight(r, c) = factors[r] * directions(r, c);
        directions(r, c) /= std::sqrt(square);
      }
    }
  }
  Matrix directions, weight;
  std::vector<double> factors;  // of the rows: magnitude / norm
};

/// The weights of the model without adapters that is equivalent to one with magnitudes, and by
/// module how its weight is made.
std::map<std::string, Decomposed> decompose(Weights& all, const Weights& weights) {
  std::map<std::string, Decomposed> made;
  for (const auto& [name, magnitudes] : weights) {
    const std::size_t at = name.find(".lora_magnitude_vector");
    if (at == std::string::npos) continue;
    const std::string module = name.substr(0, at);
    Matrix& weight = all.at(module + ".weight");
    weight = made.emplace(module, Decomposed(weight, magnitudes)).first->second.weight;
  }
  return made;
}

/// The largest difference over the largest magnitude.
double relative_difference(const Matrix& got, const Matrix& want) {
  double difference = 0, most = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    difference = std::max(difference, std::abs(got.values[i] - want.values[i]));
    most = std::max(most, std::abs(want.values[i]));
  }
  return difference / most;
}

/// Compares the gradients of all factors with those of the merged weights by the chain rule: with
/// W = W0 + s B A, d_A = s Bᵀ d_W and d_B = s d_W Aᵀ. Returns how many adapters there are.
int check_factors(const Weights& weights, const Weights& got, const Weights& d_whole) {
  int seen = 0;
  for (const auto& [name, a] : weights) {
    const std::string module = module_of(name, "A");
    if (module.empty()) continue;
    const std::string b_name = module + ".lora_B.weight";
    const Matrix& b = weights.at(b_name);
    const Matrix& d_weight = d_whole.at(module + ".weight");
    const Matrix d_a = scaled(matmul(transpose(b), d_weight), kScale),
                 d_b = scaled(matmul(d_weight, transpose(a)), kScale);
    EXPECT_LT(relative_difference(got.at(name), d_a), 1e-4) << name;
    EXPECT_LT(relative_difference(got.at(b_name), d_b), 1e-4) << b_name;
    ++seen;
  }
  return seen;
}

/// What a rank of grid 2,2,1,1 does in a step for the layer, or for the whole model: the number of
/// these operations, and of collectives.
std::int64_t count(const ModelConfig& model, const std::string& layer,
                   const std::string& operation) {
  Config config;
  config.model = model;
  config.data.synthetic = 1000;
  config.training.steps = 1;
  config.training.seq_len = 8;
  config.training.global_batch = config.training.micro_batch = 2;
  config.optimizer.lr = 1;
  config.parallelism.x = config.parallelism.y = 2;
  std::int64_t found = 0;
  for (const auto& event : dry_step(prepared(config), 0, {.recording = true}).recording.events) {
    if (const auto* op = std::get_if<Recording::Compute>(&event))
      found += op->layer == layer && op->operation == operation;
    if (const auto* start = std::get_if<Recording::Start>(&event))
      found += start->label == layer && start->operation == operation;
  }
  return found;
}

/// Compares a grid with chunks and accumulation, with and without recomputation, with one rank.
void expect_chunks_keep_the_losses(const ModelConfig& model) {
  TinyRun run{.lr = kLr, .make_model = model_of(model)};
  const TinyTrace one = run_tiny(run);
  run.grid = {2, 2, 2, 1};
  run.chunks = run.accumulation = 2;
  for (const bool recompute : {false, true}) {
    run.recompute = recompute;
    EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "") << "recompute " << recompute;
  }
}

class Lora : public testing::TestWithParam<ModelFamily> {};

}  // namespace

TEST_P(Lora, HasTheLogitsOfTheMergedWeights) {
  OneRankModel adapted(with_adapters(adapted_model(GetParam()))), whole(adapted_model(GetParam()));
  whole.set(merged(adapted.weights()));
  for (std::int64_t s = 0; s < OneRankModel::kSequences; ++s) {
    const auto got = adapted.logits(s), want = whole.logits(s);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;
  }
}

TEST_P(Lora, GradientsFollowFromTheMergedWeightsGradientByTheChainRule) {
  OneRankModel adapted(with_adapters(adapted_model(GetParam()))), whole(adapted_model(GetParam()));
  const Weights& weights = adapted.weights();
  whole.set(merged(weights));
  const auto [loss, got] = adapted.backward();
  const auto [want_loss, d_whole] = whole.backward();
  EXPECT_NEAR(loss, want_loss, 1e-4 * want_loss);
  EXPECT_EQ(check_factors(weights, got, d_whole), GetParam() == ModelFamily::gpt   ? 8
                                                  : GetParam() == ModelFamily::opt ? 12
                                                                                   : 14)
      << "two blocks of 4, 6 or 7 layers";
}

TEST_P(Lora, WithMagnitudesHasTheLogitsOfTheMergedWeights) {
  OneRankModel adapted(with_magnitudes(adapted_model(GetParam()))),
      whole(adapted_model(GetParam()));
  Weights all = merged(adapted.weights());
  EXPECT_GE(decompose(all, adapted.weights()).size(), 8);
  whole.set(all);
  for (std::int64_t s = 0; s < OneRankModel::kSequences; ++s) {
    const auto got = adapted.logits(s), want = whole.logits(s);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;
  }
}

// With W = m / |V| · V, V = W0 + s B A and |V| a constant, row by row: d_m = V / |V| · d_W, and d_V
// is m / |V| · d_W.
TEST_P(Lora, MagnitudesAndFactorsHaveTheGradientsOfConstantNorms) {
  OneRankModel adapted(with_magnitudes(adapted_model(GetParam()))),
      whole(adapted_model(GetParam()));
  const Weights& weights = adapted.weights();
  Weights all = merged(weights);
  const auto made = decompose(all, weights);
  whole.set(all);
  const auto [loss, got] = adapted.backward();
  const auto [want_loss, d_whole] = whole.backward();
  EXPECT_NEAR(loss, want_loss, 1e-4 * want_loss);
  for (const auto& [module, of] : made) {
    Matrix d_sum = d_whole.at(module + ".weight"), d_m(1, d_sum.rows);
    for (std::int64_t r = 0; r < d_sum.rows; ++r)
      for (std::int64_t c = 0; c < d_sum.cols; ++c) {
        d_m.values[r] += of.directions(r, c) * d_sum(r, c);
        d_sum(r, c) *= of.factors[r];
      }
    const auto named = [&](const char* kind) { return module + ".lora_" + kind; };
    const Matrix &a = weights.at(named("A.weight")), &b = weights.at(named("B.weight"));
    EXPECT_LT(relative_difference(got.at(named("magnitude_vector")), d_m), 1e-4) << module;
    EXPECT_LT(
        relative_difference(got.at(named("A.weight")), scaled(matmul(transpose(b), d_sum), kScale)),
        1e-4)
        << module;
    EXPECT_LT(
        relative_difference(got.at(named("B.weight")), scaled(matmul(d_sum, transpose(a)), kScale)),
        1e-4)
        << module;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Lora,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt));

TEST(Lora, AdaptersOfTheEndsAndWholeModulesHaveTheirGradients) {
  OneRankModel adapted(with_ends(adapted_model(ModelFamily::llama))),
      whole(adapted_model(ModelFamily::llama));
  const Weights& weights = adapted.weights();
  whole.set(merged(weights));
  for (std::int64_t s = 0; s < OneRankModel::kSequences; ++s) {
    const auto got = adapted.logits(s), want = whole.logits(s);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;
  }
  const auto [loss, got] = adapted.backward();
  const auto [want_loss, d_whole] = whole.backward();
  EXPECT_NEAR(loss, want_loss, 1e-4 * want_loss);
  EXPECT_EQ(check_factors(weights, got, d_whole), 4) << "q_proj twice, and both ends";
  int modules = 0;
  for (const auto& [name, gradient] : got) {
    if (!trains_whole(adapted.config().lora, name)) continue;
    EXPECT_LT(relative_difference(gradient, d_whole.at(name)), 1e-4) << name;
    ++modules;
  }
  EXPECT_EQ(modules, 5) << "two norms and three products";
}

TEST(Lora, RefusesModulesAndEndsThatCannotBeTrained) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = with_ends(adapted_model(ModelFamily::llama));
    change(config.lora);
    try {
      OneRankModel model(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.modules = {"score"}; }),
              testing::HasSubstr("[lora] modules: this model has no module 'score'"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.modules = {"up_proj"}; }),
              testing::HasSubstr("is one product: train all of its parts whole, or none"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.dropout = 0.1; }),
              testing::HasSubstr("[lora] dropout = 0.1: adapters of the embedding"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.dora = true; }),
              testing::HasSubstr("of the output layer have no magnitudes here"));
  EXPECT_THAT(refusal([](LoraConfig& lora) {
                lora.modules.clear();
                lora.choices = {lora};
              }),
              testing::HasSubstr("are not chosen for each sequence"));
}

TEST(Lora, AdaptsOnlyTheTargets) {
  ModelConfig config = with_adapters(adapted_model(ModelFamily::llama));
  config.lora.targets = {"q_proj", "down_proj"};
  const OneRankModel model(config);
  std::vector<std::string> names;
  for (const auto& [name, values] : model.weights())
    if (!module_of(name, "A").empty()) names.push_back(module_of(name, "A"));
  EXPECT_THAT(names, testing::ElementsAre(
                         "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.q_proj",
                         "model.layers.1.mlp.down_proj", "model.layers.1.self_attn.q_proj"));
}

// The embedding is frozen, so nothing reads the gradient of the first block's input.
TEST(Lora, TheFirstBlockDoesNotComputeTheGradientOfItsInput) {
  const ModelConfig config = with_adapters(adapted_model(ModelFamily::gpt));
  const auto fewer = [&](const std::string& layer, const std::string& operation) {
    return count(config, "h.1" + layer, operation) - count(config, "h.0" + layer, operation);
  };
  EXPECT_EQ(fewer(".attn.c_attn.weight", "matmul"), 2) << "of the weight, and of its adapter";
  EXPECT_EQ(fewer("", "reduce_scatter"), 1) << "over x, of that gradient";
  EXPECT_EQ(fewer(".ln_1.weight", "all_reduce"), 1) << "over y, of the norm's sums";
  EXPECT_EQ(fewer(".ln_2.weight", "all_reduce"), 0);
  EXPECT_EQ(fewer(".mlp.c_fc.weight", "matmul"), 0);
}

TEST(Lora, LayersBeforeTheFirstAdapterHaveNoBackward) {
  ModelConfig config = with_adapters(adapted_model(ModelFamily::llama));
  config.lora.targets = {"down_proj"};
  const std::string block = "model.layers.";
  EXPECT_EQ(count(config, block + "1.mlp.gate_proj|up_proj.weight", "matmul"), 2);
  EXPECT_EQ(count(config, block + "0.mlp.gate_proj|up_proj.weight", "matmul"), 1);
}

TEST(Lora, RefusesTargetsThatTheModelDoesNotHave) {
  ModelConfig config = with_adapters(adapted_model(ModelFamily::llama));
  config.lora.targets = {"c_attn"};
  EXPECT_THAT([&] { OneRankModel model(config); },
              testing::ThrowsMessage<UsageError>(
                  testing::AllOf(testing::HasSubstr("[lora] targets: there is no layer 'c_attn'"),
                                 testing::HasSubstr("q_proj"))));
}

TEST(Lora, LayersHaveRanksAndAlphasOfTheirOwnAndSomeHaveNoAdapter) {
  ModelConfig config = with_own_layers(adapted_model(ModelFamily::llama));
  OneRankModel adapted(config), whole(adapted_model(ModelFamily::llama));
  std::map<std::string, std::int64_t> ranks;
  for (const auto& [name, a] : adapted.weights())
    if (const std::string module = module_of(name, "A"); !module.empty()) ranks[module] = a.rows;
  const std::string one = "model.layers.1.";
  EXPECT_THAT(ranks, testing::ElementsAre(testing::Pair(one + "mlp.down_proj", 3),
                                          testing::Pair(one + "self_attn.q_proj", 5),
                                          testing::Pair(one + "self_attn.v_proj", 3)));
  // alpha / rank of each: 6 / 3, 6 / 5, 12 / 3.
  whole.set(merged(adapted.weights(),
                   {{one + "self_attn.q_proj", 6.0 / 5}, {one + "self_attn.v_proj", 4.0}}));
  for (std::int64_t s = 0; s < OneRankModel::kSequences; ++s) {
    const auto got = adapted.logits(s), want = whole.logits(s);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;
  }
}

TEST(Lora, RefusesLayersAndPatternsThatAreForNoLayer) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = with_own_layers(adapted_model(ModelFamily::llama));
    change(config.lora);
    try {
      validate(config.lora);
      OneRankModel model(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal([](LoraConfig& lora) {
                lora.layers = {1, 2};
              }),
              testing::HasSubstr("[lora] layers: this model has no layer 2"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.rank_pattern = {"k_proj 4"}; }),
              testing::HasSubstr("rank_pattern: 'k_proj 4' is for no layer with an adapter"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.alpha_pattern = {"proj 4"}; }),
              testing::HasSubstr("alpha_pattern: 'proj 4' is for no layer"));
  EXPECT_THAT(refusal([](LoraConfig& lora) { lora.targets = {"layers.0.self_attn.q_proj"}; }),
              testing::HasSubstr("there is no layer 'layers.0.self_attn.q_proj'"));
  for (const char* entry : {"q_proj", "q_proj 0", "q_proj 1.5", "q_proj x", " 4", "q_proj nan"})
    EXPECT_THAT(refusal([&](LoraConfig& lora) { lora.rank_pattern = {entry}; }),
                testing::HasSubstr("a rank of at least 1, such as \"q_proj 16\""));
}

TEST(Lora, RefusesTargetsInExperts) {
  ModelConfig config = with_adapters(adapted_model(ModelFamily::llama));
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = config.ffn;
  config.lora.targets = {"q_proj", "down_proj"};
  EXPECT_THAT([&] { OneRankModel model(config); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("'down_proj': routers and experts have no adapters; "
                                     "attention's products can have some: q_proj")));
}

TEST(LoraOnGrids, TheLossesAreThoseOfOneRankOnFewGrids) {
  for (const ModelConfig& config : {tiny_llama(), tiny_config(4, true)})
    EXPECT_EQ(difference_on_grids({.lr = kLr, .make_model = model_of(with_adapters(config))},
                                  few_grids()),
              "");
}

TEST(LoraOnGrids, WithOwnLayersTheLossesAreThoseOfOneRankOnFewGrids) {
  for (ModelConfig config : {with_own_layers(tiny_llama()), with_adapters(tiny_config(4, true))}) {
    if (config.family == ModelFamily::gpt) {
      config.lora.targets = {"attn.c_proj", "h.1.mlp.c_fc"};
      config.lora.rank_pattern = {"h.0.attn.c_proj 1", "c_fc 5"};
    }
    EXPECT_EQ(difference_on_grids({.lr = kLr, .make_model = model_of(config)}, few_grids()), "");
  }
}

TEST(LoraOnGrids, WithDropoutTheLossesAreThoseOfOneRankOnFewGrids) {
  EXPECT_EQ(difference_on_grids(
                {.lr = kLr, .make_model = model_of(with_adapters(tiny_llama(), 0.3))}, few_grids()),
            "");
}

TEST(LoraOnGrids, WithMagnitudesTheLossesAreThoseOfOneRankOnFewGrids) {
  for (const ModelConfig& config : {tiny_llama(), tiny_config(4, true)})
    EXPECT_EQ(difference_on_grids({.lr = kLr, .make_model = model_of(with_magnitudes(config))},
                                  few_grids()),
              "");
}

TEST(LoraOnGrids, OfTheEndsAndBesideWholeModulesTheLossesAreThoseOfOneRankOnFewGrids) {
  for (const ModelConfig& config : {tiny_llama(), tiny_config(4, true)})
    for (const ModelConfig& trained : {with_ends(config), with_whole_ends(config)})
      EXPECT_EQ(difference_on_grids({.lr = kLr, .make_model = model_of(trained)}, few_grids()), "");
}

TEST(LoraOnGrids, ChunksRecomputationAndAccumulationOfTheEndsKeepTheLosses) {
  expect_chunks_keep_the_losses(with_ends(tiny_config(4, true)));
}

TEST(LoraOnGrids, MagnitudesChunksRecomputationAndAccumulationKeepTheLosses) {
  expect_chunks_keep_the_losses(with_magnitudes(tiny_llama()));
}

TEST(LoraOnGrids, MagnitudesLearnInAllTypes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TinyTrace trace = run_tiny({.grid = {2, 2, 2, 1},
                                      .steps = 20,
                                      .dtype = dtype,
                                      .lr = 1e-2,
                                      .repeat_batch = true,
                                      .make_model = model_of(with_magnitudes(tiny_llama()))});
    EXPECT_LT(trace.losses.back(), 0.9 * trace.losses.front());
  }
}

TEST(Lora, RefusesDropoutWithMagnitudes) {
  EXPECT_THAT([] { validate(LoraConfig{.rank = 2, .dropout = 0.1, .dora = true}); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("[lora] dora = true with dropout = 0.1")));
}

TEST(LoraOnGrids, DropoutChunksRecomputationAndAccumulationKeepTheLosses) {
  expect_chunks_keep_the_losses(with_adapters(tiny_llama(), 0.3));
}

TEST(LoraOnGrids, DropoutChangesTheLosses) {
  const TinyTrace without =
      run_tiny({.lr = 1e-2, .make_model = model_of(with_adapters(tiny_llama()))});
  const TinyTrace with =
      run_tiny({.lr = 1e-2, .make_model = model_of(with_adapters(tiny_llama(), 0.3))});
  EXPECT_NE(without.losses, with.losses);
}

TEST(LoraOnGrids, TrainingLearnsAndChangesNoBitOfTheFrozenWeights) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TinyTrace trace =
        run_tiny({.grid = {2, 2, 2, 1},
                  .steps = 20,
                  .dtype = dtype,
                  .lr = 1e-2,
                  .repeat_batch = true,
                  .make_model = model_of(with_adapters(tiny_llama())),
                  .after = [](const Context& ctx, Model& model) {
                    for (ParameterGroup* group : model.groups()) {
                      if (!group->frozen()) continue;
                      const auto bits = [&] {
                        const auto* bytes =
                            static_cast<const char*>(group->piece_of_compute().data);
                        return std::string(bytes, group->piece_size() * bytes_of(ctx.dtype));
                      };
                      const std::string now = bits();
                      group->initialise(ctx, TinyRun{}.seed);
                      EXPECT_EQ(now, bits()) << group->name();
                    }
                  }});
    EXPECT_LT(trace.losses.back(), 0.9 * trace.losses.front());
  }
}

TEST(LoraOnGrids, FrozenWeightsTakeTwoBytesEachInBfloat16) {
  TinyRun run{.steps = 2,
              .dtype = DType::bf16,
              .make_model = model_of(with_adapters(tiny_config(4, true)))};
  std::int64_t frozen = 0, trained = 0;
  run.after = [&](const Context&, Model& model) {
    for (ParameterGroup* group : model.groups())
      (group->frozen() ? frozen : trained) += group->piece_size();
  };
  const ArenaStats memory = run_tiny(run).memory.back();
  // Trained weights have a compute copy, a gradient, a master copy and two moments.
  EXPECT_EQ(memory.live_bytes, 2 * frozen + (2 + 4 + 4 + 8) * trained);
}
