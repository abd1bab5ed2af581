#include "axonn/plan/planner/estimate.h"

#include <gmock/gmock.h>

#include "axonn/network/model/counts.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

#include "tests/plan/planner/configs.h"
#include "tests/plan/planner/machines.h"
#include "tests/plan/planner/whole_step.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

std::string describe(const Config& config) {
  return "grid " + with_factors(config.parallelism.grid()) + ", micro-batch " +
         std::to_string(config.training.micro_batch) + " of " +
         std::to_string(config.training.global_batch) +
         (config.activation_checkpoint.mode == RecomputeMode::full ? ", recomputed" : "");
}

const std::vector<GridShape> kGrids = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                       {1, 1, 1, 2}, {2, 2, 2, 1}, {2, 1, 2, 2}, {1, 2, 2, 2},
                                       {1, 1, 4, 2}, {4, 1, 1, 2}};

/// base on these grids, each with recomputation and without.
std::vector<Config> configs_of(const Config& base, const std::vector<GridShape>& grids = kGrids) {
  std::vector<Config> all;
  for (const GridShape& grid : grids)
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
      Config config = base;
      config.parallelism.set_grid(grid);
      config.activation_checkpoint.mode = mode;
      all.push_back(config);
    }
  return all;
}

/// Peaks of the arenas of all ranks in a real run.
std::vector<std::int64_t> peaks(const Config& config) {
  std::vector<std::int64_t> bytes(config.parallelism.grid().ranks());
  run_ranks(static_cast<int>(bytes.size()), [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < 2; ++step)
      training.step.run(training.model.context(), training.input(step));
    bytes[world.rank()] = training.model.arena().stats().peak_bytes;
  });
  return bytes;
}

}  // namespace

TEST(Estimate, OfADeepStepAgreesWithASimulationOfAllBlocks) {
  // Each block makes the same difference, unless more blocks hide more of a collective at the ends
  // of the step: extrapolation continues even after it is hidden. The error is at most the part of
  // the sums over data that three blocks leave exposed.
  constexpr double kEnds = 0.05;
  for (Config config : configs_of(small_gpt())) {
    SCOPED_TRACE(describe(config));
    config.model.layers = 24;
    const StepTime whole = simulate_whole_step(prepared(config), round_machine()),
                   estimated = estimate(prepared(config), round_machine()).time;
    EXPECT_NEAR(estimated.step_s, whole.step_s, kEnds * whole.step_s);
    EXPECT_NEAR(estimated.compute_s, whole.compute_s, kEnds * whole.step_s);
    EXPECT_NEAR(estimated.exposed_s() + estimated.compute_s, estimated.step_s, 1e-9 * whole.step_s);
    for (const auto& [name, seconds] : whole.exposed_by)
      EXPECT_NEAR(estimated.exposed_by.at(name), seconds, kEnds * whole.step_s) << name;
  }
}

TEST(Estimate, CertainSecondsOfAnEstimateAreAtMostThoseOfAllBlocks) {
  for (Config config : configs_of(small_gpt())) {
    config.model.layers = 24;
    SCOPED_TRACE(describe(config));
    for (const std::int64_t micro_batch : {1, 2, 4}) {
      config.training.micro_batch = micro_batch;
      const StepTime estimated = estimate(prepared(config), round_machine()).time;
      EXPECT_LE(certain_seconds(estimated), predict(prepared(config), round_machine()).time.step_s);
    }
  }
  // Computation is certain within 2 %, waits within a quarter, late ranks as computation is.
  EXPECT_NEAR(certain_seconds({.step_s = 10, .compute_s = 6, .exposed_by = {{"x all_reduce", 4}}}),
              10 / 1.05, 1e-9);
  EXPECT_NEAR(
      certain_seconds(
          {.step_s = 10, .compute_s = 6, .exposed_by = {{"x all_reduce", 0.4}, {kLateRanks, 3.6}}}),
      9.9 / 1.02, 1e-9);
}

TEST(Estimate, OfAStepWhoseLayersDifferAgreesWithASimulationOfAllBlocks) {
  constexpr double kEnds = 0.05;  // as above
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 1, 4, 1, 1, 2}})
    for (const std::vector<std::int64_t>& dense : {std::vector<std::int64_t>{}, {1}}) {
      Config config = tiny_config_with_experts();
      config.parallelism.set_grid(grid);
      config.parallelism.experts = grid.experts;
      config.model.layers = 24;
      config.model.dense_layers = dense;
      SCOPED_TRACE(describe(config));
      const StepTime whole = simulate_whole_step(prepared(config), round_machine());
      EXPECT_NEAR(estimate(prepared(config), round_machine()).time.step_s, whole.step_s,
                  kEnds * whole.step_s);
      const auto peak = static_cast<double>(dry_step(prepared(config), 0).memory.peak_bytes);
      EXPECT_NEAR(static_cast<double>(estimate_memory(prepared(config))), peak, kEnds * peak);
    }
}

TEST(Estimate, OfAStepWhoseLayersHaveAWindowOrNotAgreesWithASimulationOfAllBlocks) {
  constexpr double kEnds = 0.05;  // as above
  Config config = tiny_llama_config();
  config.model.layers = 24;
  config.model.window = 2;
  for (std::int64_t layer = 3; layer < 24; layer += 4) {
    config.model.full_layers.push_back(layer);
    config.model.nope_layers.push_back(layer);
  }
  const StepTime whole = simulate_whole_step(prepared(config), round_machine());
  EXPECT_NEAR(estimate(prepared(config), round_machine()).time.step_s, whole.step_s,
              kEnds * whole.step_s);
  const auto peak = static_cast<double>(dry_step(prepared(config), 0).memory.peak_bytes);
  EXPECT_NEAR(static_cast<double>(estimate_memory(prepared(config))), peak, kEnds * peak);
}

TEST(Estimate, OfManyMicroBatchesAgreesWithASimulationOfAll) {
  constexpr double kEnds = 0.03;  // as above; all but the first and last are like the second
  for (Config config : configs_of(small_gpt())) {
    config.training.micro_batch = 1;
    SCOPED_TRACE(describe(config));
    const StepTime whole = simulate_whole_step(prepared(config), round_machine()),
                   estimated = estimate(prepared(config), round_machine()).time;
    EXPECT_NEAR(estimated.step_s, whole.step_s, kEnds * whole.step_s);
    EXPECT_GE(config.training.global_batch, 4 * config.parallelism.z * config.parallelism.data);
  }
}

TEST(Estimate, OfKeptWeightsAgreesWithASimulationOfAllAndCountsEachGather) {
  constexpr double kEnds = 0.03;  // as above
  for (const GridShape& grid : {GridShape{1, 1, 4, 1}, GridShape{2, 1, 2, 1}}) {
    Config config = small_gpt();
    config.parallelism.set_grid(grid);
    config.training.micro_batch = 1;
    const auto micro_batches = static_cast<double>(config.training.global_batch / grid.z);
    const auto gathers = [&](KeepWeights keep) {
      config.parallelism.keep_weights = keep;
      const StepTime whole = simulate_whole_step(prepared(config), round_machine()),
                     estimated = estimate(prepared(config), round_machine()).time;
      EXPECT_NEAR(estimated.step_s, whole.step_s, kEnds * whole.step_s) << describe(config);
      EXPECT_NEAR(estimated.alone_by.at("z all_gather"), whole.alone_by.at("z all_gather"),
                  kEnds * whole.alone_by.at("z all_gather"));
      return whole.alone_by.at("z all_gather");
    };
    const double twice = gathers(KeepWeights::none), once = gathers(KeepWeights::micro_batch),
                 in_a_step = gathers(KeepWeights::step);
    EXPECT_GT(twice, 1.5 * once);  // those of embedding and head are gathered once in any case
    EXPECT_LT(twice, 2 * once);
    EXPECT_NEAR(in_a_step * micro_batches, once, 1e-9 * once);
  }
}

TEST(Estimate, IsAtLeastTheTimeInWhichANodeSendsItsLocalCheckpoints) {
  Machine machine = round_machine();
  machine.bf16.flops_per_s = machine.attention_flops_per_s = 1e17;
  machine.memory_bytes_per_s = 1e15;
  Config config = small_gpt();
  config.parallelism.set_grid({1, 1, 4, 2});  // two nodes; each rank has an eighth of the state
  const double alone = predict(prepared(config), machine).time.step_s;
  constexpr double kState = 12;  // bytes of a parameter: weights and moments in f32
  const auto piece = static_cast<double>(parameter_count(config.model)) / 8,
             sending = 4 * piece * kState / machine.node_bytes_per_s;
  ASSERT_GT(sending, alone);
  config.checkpoint.local_every = 1;
  for (const Prediction& prediction :
       {predict(prepared(config), machine), estimate(prepared(config), machine)}) {
    const StepTime& predicted = prediction.time;
    EXPECT_NEAR(predicted.step_s, sending, 0.01 * sending) << "but for padding";
    EXPECT_NEAR(predicted.exposed_by.at(kLocalCheckpoints), sending - alone, 0.02 * sending);
  }
  config.checkpoint.local_every = 1000;
  EXPECT_EQ(predict(prepared(config), machine).time.step_s, alone);
  config.checkpoint.local_every = 1;
  config.parallelism.set_grid({1, 1, 4, 1});
  EXPECT_FALSE(predict(prepared(config), machine).time.exposed_by.contains(kLocalCheckpoints))
      << "on one node";
}

TEST(Estimate, OfComputeAloneIsExactUpToRounding) {
  Config config = small_gpt();
  config.model.layers = 17;
  config.training.micro_batch = 4;
  const StepTime whole = simulate_whole_step(prepared(config), round_machine()),
                 estimated = estimate(prepared(config), round_machine()).time;
  EXPECT_EQ(whole.exposed_s(), 0);
  EXPECT_NEAR(estimated.step_s, whole.step_s, 1e-9 * whole.step_s);
}

TEST(Estimate, OfMemoryIsWithinThreePercentOfARealRun) {
  int combinations = 0;
  for (const Config& base : {tiny_gpt_config(), tiny_llama_config()})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (Config config :
           configs_of(base, {{2, 1, 1, 1}, {1, 2, 1, 2}, {1, 1, 2, 2}, {2, 2, 2, 1}})) {
        config.training.dtype = dtype;
        config.parallelism.keep_weights =
            dtype == DType::bf16 ? KeepWeights::step : KeepWeights::none;
        SCOPED_TRACE(describe(config));
        const auto measured = peaks(config);
        const auto estimated = static_cast<double>(estimate_memory(prepared(config)));
        for (const std::int64_t bytes : measured)
          EXPECT_NEAR(estimated, static_cast<double>(bytes), 0.03 * static_cast<double>(bytes));
        EXPECT_EQ(predict(prepared(config), round_machine()).memory_bytes, measured.front());
        ++combinations;
      }
  EXPECT_GE(combinations, 12);
}

TEST(Estimate, OfADeepModelsMemoryIsWithinThreePercent) {
  for (Config config : configs_of(small_gpt())) {
    SCOPED_TRACE(describe(config));
    config.model.layers = 40;
    const auto exact = static_cast<double>(predict(prepared(config), round_machine()).memory_bytes);
    EXPECT_NEAR(static_cast<double>(estimate_memory(prepared(config))), exact, 0.03 * exact);
  }
}
