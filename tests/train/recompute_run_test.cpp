// Blocks that compute a part of their forward pass again: the same bits with less memory, which a
// budget chooses.
#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/comm/threads/threads.h"
#include "axonn/measure/compare.h"
#include "axonn/measure/dry_step.h"
#include "axonn/measure/recompute_budget.h"
#include "axonn/train/training.h"

#include "tests/support/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// Activations take most of its memory.
Config recomputed_config(ModelFamily family = ModelFamily::llama) {
  Config config = tiny_config("unused");
  config.model.family = family;
  config.model.layers = 4;
  if (family == ModelFamily::llama) config.model.kv_heads = 6;
  config.training.seq_len = 32;
  return config;
}

GridTrace three_steps_of(const Config& config) {
  GridTrace trace;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace mine = trace_run(config, world, make_cpu_backend(1), {.steps = 3});
    if (world.rank() == 0) trace = std::move(mine);
  });
  return trace;
}

std::vector<ArenaStats> memory_of(const Config& config) {
  std::vector<ArenaStats> all(config.parallelism.grid().ranks());
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    Training training(config, world, make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < 2; ++step) training.run(step);
    all[world.rank()] = training.model.arena().stats();
  });
  return all;
}

std::int64_t peak_of(const Config& config) { return dry_step(config, 0).memory.peak_bytes; }

}  // namespace

TEST(Recomputation, HasTheSameBitsAtEveryLevelAndThePeakOfTheDryRun) {
  for (const ModelFamily family : {ModelFamily::llama, ModelFamily::gpt})
    for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}})
      for (const int chunks : {1, 2}) {
        Config given = recomputed_config(family);
        given.parallelism.chunks = chunks;
        if (chunks == 2) given.training.dtype = DType::bf16;
        const Config config = resolved(on_grid(given, grid));
        const GridTrace want = three_steps_of(config);
        for (const std::int64_t level : {2, 4, 6, 8}) {
          const Config again = with_recomputation(config, level);
          SCOPED_TRACE(testing::Message() << to_string(grid) << ", level " << level);
          const GridTrace got = three_steps_of(again);
          EXPECT_EQ(got.losses, want.losses);
          EXPECT_EQ(got.norms, want.norms);
          const std::vector<ArenaStats> real = memory_of(again);
          for (int rank = 0; rank < grid.ranks(); ++rank)
            EXPECT_EQ(dry_step(again, rank).memory.peak_by, real[rank].peak_by) << rank;
        }
      }
}

TEST(Recomputation, EachLevelTakesLessMemoryAndLightBlocksKeepNoOutputsOfNormsAndActivations) {
  const Config config = resolved(recomputed_config());
  std::int64_t before = peak_of(config);
  const std::int64_t none = before;
  for (std::int64_t level = 1; level <= most_recomputation(config); ++level) {
    const std::int64_t peak = peak_of(with_recomputation(config, level));
    // The last block's backward comes first, and needs all of its values, or almost all.
    if (level % config.model.layers != 0) {
      EXPECT_LT(peak, before) << level;
    }
    if (level < most_recomputation(config)) {
      EXPECT_LE(peak, before) << level;
    }
    before = peak;
  }
  // Of each row: the outputs of two norms and of SwiGLU, in f32, in all blocks but the last.
  const ModelConfig& model = config.model;
  const std::int64_t rows = config.training.micro_batch * config.training.seq_len;
  EXPECT_EQ(none - peak_of(with_recomputation(config, 3)),
            3 * rows * (2 * model.hidden + model.ffn) * bytes_of(DType::f32));
}

TEST(Recomputation, ABudgetTakesTheLeastLevelThatKeepsItToTheByte) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    Config config = resolved(on_grid(recomputed_config(), grid));
    for (const std::int64_t level : {0, 1, 3, 5, 7}) {
      const Config want = with_recomputation(config, level);
      config.activation_checkpoint.budget = peak_of(want);
      const RecomputeConfig got = within_budget(config).activation_checkpoint;
      EXPECT_EQ(got.mode, want.activation_checkpoint.mode) << level;
      EXPECT_EQ(got.blocks, want.activation_checkpoint.blocks) << level;
      --config.activation_checkpoint.budget;
      if (level == 7) break;  // no level takes less
      EXPECT_LT(peak_of(within_budget(config)), peak_of(want)) << level;
    }
    EXPECT_THAT([&] { within_budget(config); },
                testing::ThrowsMessage<UsageError>(
                    testing::AllOf(HasSubstr("[activation_checkpoint] budget = "),
                                   HasSubstr(concat("set budget to at least ",
                                                    config.activation_checkpoint.budget + 1)))));
  }
}
