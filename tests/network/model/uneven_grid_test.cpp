// Heads and widths that x does not divide: the last ranks compute fewer, or none, and the losses
// stay those of one rank.
#include <gtest/gtest.h>

#include "tests/support/data_files.h"
#include "tests/support/grids.h"
#include "tests/support/model_folder.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// As GPT-2 XL, whose 25 heads no two ranks share evenly.
ModelConfig uneven_gpt() {
  ModelConfig config = tiny_config(5, true);
  config.heads = 5;
  config.head_dim = 4;
  config.ffn = 101;
  return config;
}

/// Three key-value heads, each read by three query heads.
ModelConfig uneven_llama() {
  ModelConfig config = tiny_llama();
  config.heads = 9;
  config.kv_heads = 3;
  config.ffn = 53;
  return config;
}

ModelConfig uneven_mixtral() {
  ModelConfig config = uneven_llama();
  config.experts = 8;
  config.experts_per_token = 2;
  config.expert_ffn = 5;  // on four ranks the last one has none of it
  return config;
}

ModelConfig with_adapters(ModelConfig config) {
  config.lora = {.rank = 3, .alpha = 6, .dropout = 0.2};
  return config;
}

/// Grids on which x cuts unevenly, also alone.
std::vector<GridShape> uneven_grids() {
  if (sanitized()) return {{2, 2, 1, 1}, {4, 1, 2, 1}};
  return {{2, 1, 1, 1}, {4, 1, 1, 1}, {8, 1, 1, 1}, {2, 2, 1, 1}, {4, 1, 2, 1},
          {4, 2, 1, 1}, {2, 2, 2, 1}, {2, 1, 2, 2}, {5, 1, 1, 1}, {7, 1, 1, 1}};
}

}  // namespace

TEST(UnevenGrids, AGptWithFiveHeadsHasTheLossesOfOneRankOnManyGrids) {
  EXPECT_EQ(difference_on_grids({.make_model = model_of(uneven_gpt())}, many_grids()), "");
}

TEST(UnevenGrids, ALlamaWithThreeKeyValueHeadsHasTheLossesOfOneRankOnManyGrids) {
  EXPECT_EQ(difference_on_grids({.make_model = model_of(uneven_llama())}, many_grids()), "");
}

TEST(UnevenGrids, MoreRanksThanHeadsHaveTheLossesOfOneRank) {
  EXPECT_EQ(difference_on_grids({.make_model = model_of(uneven_gpt())}, uneven_grids()), "");
  ModelConfig one = uneven_llama();
  one.kv_heads = 1;
  one.heads = 3;
  EXPECT_EQ(difference_on_grids({.make_model = model_of(one)}, uneven_grids()), "");
}

TEST(UnevenGrids, NormsOfQueriesAndKeysHaveTheLossesOfOneRank) {
  for (const QkNormKind kind : {QkNormKind::head, QkNormKind::width}) {
    ModelConfig config = uneven_llama();
    config.qk_norm = kind;
    EXPECT_EQ(difference_on_grids({.make_model = model_of(config)}, uneven_grids()), "");
  }
}

TEST(UnevenGrids, BiasesChunksAndBfloat16HaveTheLossesOfOneRank) {
  ModelConfig config = uneven_llama();
  config.qkv_bias = true;
  TinyRun run{.accumulation = 2, .chunks = 2, .make_model = model_of(config)};
  EXPECT_EQ(difference_on_grids(run, uneven_grids()), "");
  EXPECT_EQ(difference_on_grids({.dtype = DType::bf16, .make_model = model_of(uneven_gpt())},
                                uneven_grids()),
            "");
}

TEST(UnevenGrids, ExpertsOfAWidthOfFiveHaveTheLossesOfOneRank) {
  std::vector<GridShape> grids = uneven_grids();
  grids.push_back({.x = 2, .z = 2, .experts = 2});
  grids.push_back({.x = 4, .y = 1, .z = 2, .experts = 2});
  EXPECT_EQ(difference_replayed(
                {.balance = {.weight = 0.01, .z = 0.001}, .make_model = model_of(uneven_mixtral())},
                grids),
            "");
}

TEST(UnevenGrids, AdaptersHaveTheLossesOfOneRank) {
  for (const ModelConfig& config : {uneven_gpt(), uneven_llama()})
    EXPECT_EQ(difference_on_grids({.lr = 1e-2, .make_model = model_of(with_adapters(config))},
                                  uneven_grids()),
              "");
}

TEST(UnevenGrids, MuonHasTheLossesOfOneRank) {
  for (const ModelConfig& config : {uneven_gpt(), uneven_llama()})
    EXPECT_EQ(
        difference_on_grids({.optimizer = OptimizerKind::muon, .make_model = model_of(config)},
                            uneven_grids()),
        "");
}

TEST(UnevenGrids, SharedSequencesHaveTheLossesOfOneRank) {
  ModelConfig config = uneven_llama();
  config.positions = 512;
  TinyRun run{.sequences = 4, .positions = 512, .steps = 3, .make_model = model_of(config)};
  EXPECT_EQ(difference_on_grids(run, {{.x = 2, .z = 2, .context = 2},
                                      {.x = 4, .z = 2, .context = 2},
                                      {.x = 2, .y = 2, .z = 2, .context = 2}}),
            "");
}

TEST(UnevenGrids, NeitherOverlapNorRecomputationChangesABit) {
  for (const ModelConfig& config : {uneven_gpt(), uneven_llama()}) {
    TinyRun run{.grid = {4, 2, 1, 1}, .steps = 3, .make_model = model_of(config)};
    const TinyTrace want = run_tiny(with(no_overlap(), run));
    for (const Switches& switches : all_or_nothing()) {
      const TinyTrace got = run_tiny(with(switches, run));
      EXPECT_EQ(got.losses, want.losses) << switches.name;
      EXPECT_EQ(got.weights, want.weights) << switches.name;
    }
  }
}

TEST(UnevenGrids, CheckpointsMoveBetweenThem) {
  const test::TempFolder folder;
  for (ModelConfig config : {uneven_gpt(), uneven_llama(), with_adapters(uneven_llama())}) {
    const std::string name = std::to_string(folder.entries()), path = folder.path(name);
    if (config.lora.rank > 0) {
      config.path = folder.path(name + "-base");
      ModelConfig base = config;
      base.lora = {};
      base.path = "";
      test::save_checkpoint(config.path, base, {4, 1, 2, 1});
    }
    test::save_checkpoint(path, config, {4, 2, 1, 1});
    ModelConfig stored = config;
    (config.lora.rank > 0 ? stored.lora.path : stored.path) = path;
    const std::vector<float> want = test::logits(stored, {});
    for (const GridShape& grid : {GridShape{2, 1, 2, 1}, {8, 1, 1, 1}, {1, 2, 1, 2}}) {
      const std::vector<float> got = test::logits(stored, grid);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
    }
  }
}
