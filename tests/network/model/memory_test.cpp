// Memory as the arena counts it: a rank's part of a model, and that a step frees all it allocates.
#include <mutex>

#include <gmock/gmock.h>

#include "axonn/network/model/counts.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Many layers, so that a block is a small part of it; few tokens, so that parameters dominate.
ModelConfig deep_config() {
  ModelConfig config = tiny_config(24, true);
  config.layers = 16;
  config.positions = 2;
  return config;
}

TinyRun deep_run(const GridShape& grid, DType dtype) {
  return {.grid = grid,
          .sequences = 8,
          .positions = 2,
          .steps = 3,
          .dtype = dtype,
          .recompute = true,
          .make_model = model_of(deep_config())};
}

/// The memory of every rank after the last step.
std::vector<ArenaStats> memory_of_ranks(const TinyRun& run) {
  std::vector<ArenaStats> all(run.grid.ranks());
  std::mutex mutex;
  run_ranks(run.grid.ranks(), [&](Communicator& world) {
    const TinyTrace trace = run_tiny(run, world);
    const std::lock_guard lock(mutex);
    all[world.rank()] = trace.memory.back();
  });
  return all;
}

/// Bytes of state per parameter: compute copy, gradient, two moments, and with bf16 the master
/// copy.
std::int64_t bytes_each(DType dtype) { return dtype == DType::f32 ? 16 : 2 + 4 + 4 + 8; }

/// Parameters in a group's buffer begin on multiples of 32 elements, and the buffer ends on one.
constexpr std::int64_t kAlign = 32;
constexpr std::int64_t kMostParametersOfAGroup = 12;

std::int64_t groups_of(const ModelConfig& config) { return config.layers + 2; }

}  // namespace

TEST(Memory, OfOneRankIsItsParametersGradientsAndMoments) {
  const std::int64_t parameters = parameter_count(deep_config());
  for (DType dtype : {DType::f32, DType::bf16}) {
    const ArenaStats one = memory_of_ranks(deep_run({}, dtype)).front();
    const std::int64_t padding = groups_of(deep_config()) * kMostParametersOfAGroup * kAlign;
    EXPECT_GE(one.live_bytes, bytes_each(dtype) * parameters);
    EXPECT_LE(one.live_bytes, bytes_each(dtype) * (parameters + padding));
  }
}

TEST(Memory, OfEachOfEightRanksOverZIsAnEighth) {
  for (const GridShape& grid : {GridShape{1, 1, 8, 1}, GridShape{1, 1, 2, 1}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t one = memory_of_ranks(deep_run({}, dtype)).front().live_bytes;
      // A group's buffer is padded to z · 32 elements, not 32: fewer than 32 more per rank.
      const std::int64_t padding = groups_of(deep_config()) * kAlign * bytes_each(dtype);
      for (const ArenaStats& rank : memory_of_ranks(deep_run(grid, dtype))) {
        EXPECT_GE(rank.live_bytes * grid.z, one);
        EXPECT_LE(rank.live_bytes, one / grid.z + padding);
      }
    }
  }
}

TEST(Memory, NeverHoldsAFullModelEvenWithinAStep) {
  const std::int64_t full = parameter_count(deep_config()) * bytes_of(DType::f32);
  for (const ArenaStats& rank : memory_of_ranks(deep_run({1, 1, 8, 1}, DType::f32)))
    EXPECT_LT(rank.peak_bytes, full) << "enough for all parameters in f32, without any state";
}

TEST(Memory, IsTheSameAfterEveryStepWhateverTheGrid) {
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 2, 1}, GridShape{1, 2, 1, 2},
                                GridShape{6, 1, 1, 1}, GridShape{1, 1, 2, 2}}) {
    for (bool recompute : {false, true}) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE("grid " + to_string(grid) + (recompute ? ", recomputed" : ""));
        const TinyTrace trace = run_tiny({.grid = grid,
                                          .steps = 5,
                                          .accumulation = 2,
                                          .dtype = dtype,
                                          .chunks = 2,
                                          .recompute = recompute,
                                          .make_model = tiny_gpt(4, false)});
        for (const ArenaStats& after : trace.memory) {
          EXPECT_EQ(after.live_bytes, trace.memory.front().live_bytes);
          EXPECT_EQ(after.device_calls, trace.memory[1].device_calls);
        }
        // From the second step on, prefetching gathers the next block early.
        EXPECT_EQ(trace.memory.back().peak_bytes, trace.memory[1].peak_bytes);
      }
    }
  }
}

TEST(Memory, IsAllocatedOnTheDeviceOnlyInTheFirstTwoSteps) {
  // Activations fill several of the arena's segments of 64 MiB.
  ModelConfig config = tiny_config(24, true);
  config.layers = 6;
  config.positions = 64;
  const TinyTrace trace = run_tiny({.grid = {1, 1, 2, 1},
                                    .sequences = 48,
                                    .positions = 64,
                                    .steps = 4,
                                    .make_model = model_of(config)});
  EXPECT_GE(trace.memory[1].device_calls, 2) << "the model is too small for this test";
  EXPECT_EQ(trace.memory.back().device_calls, trace.memory[1].device_calls);
  EXPECT_EQ(trace.memory.back().reserved_bytes, trace.memory[1].reserved_bytes);
}
