// Models whose frozen weights are kept as codes, under adapters.
#include <string>

#include <gtest/gtest.h>

#include "tests/support/grids.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr double kRate = 2e-3;

ModelConfig quantized_llama(Quantization kind) {
  ModelConfig config = tiny_llama();
  config.lora = {.rank = 3, .alpha = 6};
  config.quantize = kind;
  return config;
}

}  // namespace

TEST(QuantizedModel, TheLossesAreThoseOfOneRankOnFewGrids) {
  for (const Quantization kind : {Quantization::nf4, Quantization::int8, Quantization::q8_0})
    EXPECT_EQ(difference_on_grids({.lr = kRate, .make_model = model_of(quantized_llama(kind))},
                                  few_grids()),
              "");
}

TEST(QuantizedModel, OfSeveralKindsTheLossesAreThoseOfOneRankOnFewGrids) {
  ModelConfig config = quantized_llama(Quantization::file);
  KeptKinds::ByName kinds;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    kinds[name + ".self_attn.q_proj.weight"] = Quantization::q4_0;
    kinds[name + ".self_attn.v_proj.weight"] = Quantization::q8_0;  // k_proj: in the compute type
    kinds[name + ".mlp.gate_proj.weight"] = Quantization::q8_0;
    kinds[name + ".mlp.up_proj.weight"] = layer == 0 ? Quantization::q8_0 : Quantization::q4_0;
  }
  config.file_kinds = KeptKinds(kinds);
  EXPECT_EQ(difference_on_grids({.lr = kRate, .make_model = model_of(config)}, few_grids()), "");
  kinds.erase("model.layers.0.self_attn.v_proj.weight");
  ModelConfig other = config;
  other.file_kinds = KeptKinds(kinds);
  EXPECT_NE(run_tiny({.lr = kRate, .make_model = model_of(other)}).losses,
            run_tiny({.lr = kRate, .make_model = model_of(config)}).losses);
}

TEST(QuantizedModel, WithExpertsTheLossesAreThoseOfOneRankOnFewGrids) {
  ModelConfig config = tiny_mixtral();
  config.lora = {.rank = 3, .alpha = 6, .targets = {"q_proj", "o_proj"}};
  config.quantize = Quantization::nf4;
  for (const bool biases : {false, true}) {
    config.expert_bias = biases;
    EXPECT_EQ(difference_on_grids({.lr = kRate, .make_model = model_of(config)}, few_grids()), "")
        << biases;
  }
}

TEST(QuantizedModel, ChunksRecomputationAndAccumulationKeepTheLosses) {
  TinyRun run{.lr = kRate, .make_model = model_of(quantized_llama(Quantization::nf4))};
  const TinyTrace one = run_tiny(run);
  run.grid = {2, 2, 2, 1};
  run.chunks = run.accumulation = 2;
  for (const bool recompute : {false, true}) {
    run.recompute = recompute;
    EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "") << "recompute " << recompute;
  }
}

TEST(QuantizedModel, ItsCodesChangeTheLossesAndStay) {
  ModelConfig plain = quantized_llama(Quantization::nf4);
  plain.quantize = Quantization::none;
  EXPECT_NE(
      run_tiny({.lr = kRate, .make_model = model_of(plain)}).losses,
      run_tiny({.lr = kRate, .make_model = model_of(quantized_llama(Quantization::nf4))}).losses);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TinyRun run{.grid = {2, 2, 2, 1},
                .steps = 20,
                .dtype = dtype,
                .lr = 1e-2,
                .repeat_batch = true,
                .make_model = model_of(quantized_llama(Quantization::nf4))};
    int quantized = 0;  // groups, as rank 0 counts them
    run.after = [&](const Context& ctx, Model& model) {
      for (ParameterGroup* group : model.groups()) {
        if (group->quantization() == Quantization::none) continue;
        if (ctx.grid.world().rank() == 0) ++quantized;
        const auto bits = [&] {
          const View records = group->piece_of_compute();
          return std::string(static_cast<const char*>(records.data), records.count());
        };
        const std::string now = bits();
        group->initialise(ctx, TinyRun{}.seed);
        EXPECT_EQ(now, bits()) << group->name();
      }
    };
    const TinyTrace trace = run_tiny(run);
    EXPECT_LT(trace.losses.back(), 0.9 * trace.losses.front());
    EXPECT_EQ(quantized, 2) << "a group of each block";
  }
}
